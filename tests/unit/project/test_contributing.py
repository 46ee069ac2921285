"""CONTRIBUTING.md names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def it_names_files_and_folders_that_exist():
    named = set(re.findall(r"`((?:icecdc_core|tests|docs)/[\w/.-]+)`", TEXT))
    assert (bool(named), sorted(path for path in named if not (ROOT / path).exists())) == (True, [])
