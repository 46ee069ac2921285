"""Every guarantee that is documented names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py::[\w:]+)`", TEXT)))


def tests_of(path: Path) -> set[str]:
    """The tests of a file as pytest names them, without parameters."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("named", NAMED)
def it_names_tests_that_exist(named):
    file, _, test = named.partition("::")
    assert test in tests_of(ROOT / file)


def it_has_a_test_in_every_row():
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("|---")]
    heads = [row for row in rows if row.endswith("| Test |")]
    assert (len(heads), [row for row in rows if row not in heads and "`tests/" not in row]) == (7, [])
