"""The output of Spark's JVM, which fills a notebook or a terminal, goes to a file instead."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STDERR = 2
_SHOWN = 4000


@contextmanager
def jvm_output_to_file() -> Iterator[Path]:
    """Let a JVM that starts in the block write its output to the file that is yielded.

    If the block fails, the end of the file is shown on the standard error.
    """
    # The log names tables and paths, so it has a private folder: in a shared one somebody could prepare a link.
    log = Path(tempfile.mkdtemp(prefix="icecdc-spark-")) / "spark.log"
    stderr = os.dup(_STDERR)
    try:
        # The JVM inherits the file descriptor, whatever Python's sys.stderr is.
        with open(log, "xb", opener=_private) as file:
            os.dup2(file.fileno(), _STDERR)
        yield log
    except Exception:
        sys.stderr.write(log.read_text(encoding="utf-8", errors="replace")[-_SHOWN:])
        raise
    finally:
        os.dup2(stderr, _STDERR)
        os.close(stderr)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
