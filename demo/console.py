"""The demos' command line: what they print, and options that are also environment variables."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from icecdc_core.reporting.progress import activity, print_line


@contextmanager
def timed_step(description: str) -> Iterator[None]:
    """Show what the block does, on a terminal; when it has succeeded, print that and how long it took."""
    begin = time.monotonic()
    with activity(description):
        yield
    print_line(f"{description} ({time.monotonic() - begin:.1f} s)")


def add_option(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add an option whose default is an environment variable."""
    variable = "ICECDC_" + name.replace("-", "_").upper()
    parser.add_argument(f"--{name}", default=os.environ.get(variable, ""), help=f"{text} [{variable}]")
