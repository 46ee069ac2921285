"""CONTRIBUTING.md names files that exist, every check, every folder of tests and what `make test` leaves out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def it_names_files_and_folders_that_exist():
    named = set(re.findall(r"`((?:icecdc_core|tests|docs)/[\w/.-]+)`", TEXT))
    assert (bool(named), sorted(path for path in named if not (ROOT / path).exists())) == (True, [])


def it_lists_each_check_that_make_has():
    section = (ROOT / "Makefile").read_text(encoding="utf-8").partition("##@ Check")[2].partition("##@ ")[0]
    targets = re.findall(r"^([a-z0-9-]+):.*## ", section, re.MULTILINE)
    assert (bool(targets), [target for target in targets if not re.search(rf"`make {target}[` ]", TEXT)]) == (True, [])


def it_lists_each_folder_of_tests():
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert (bool(folders), sorted(name for name in folders if f"| `tests/{name}` |" not in TEXT)) == (True, [])


def it_names_each_file_with_tests_that_make_test_leaves_out_for_their_length():
    section = TEXT.partition("## What `make test` leaves out")[2].partition("\n## ")[0]
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"pytest\.mark\.long\b", path.read_text())
    }
    named = set(re.findall(r"^\| `long` \| `([^`]+)`", section, re.MULTILINE))
    assert named == marked
