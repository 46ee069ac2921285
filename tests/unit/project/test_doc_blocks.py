"""Every fenced block of README.md and docs/ is run by a test, is checked here, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.doc_blocks import all_blocks, blocks_of, commands_of, exists, load_index_file, problems_of

ROOT = Path(__file__).parents[3]

BLOCKS = all_blocks()


def one(text: str):
    (block,) = blocks_of(text, "docs/new.md")
    return block


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.id)
def it_is_run_or_checked_or_says_why_not(block):
    assert problems_of(block) == []


@pytest.mark.parametrize(
    "block",
    [each for each in BLOCKS if each.language == "yaml" and not each.mark],
    ids=lambda block: block.id,
)
def it_is_an_index_file_that_can_be_loaded(block, tmp_path, monkeypatch):
    assert list(load_index_file(block, tmp_path)) == list(yaml.safe_load(block.text)["indexes"])


def it_names_a_test_that_exists_for_each_guarantee():
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py::[\w:]+)`", text)
    assert (len(named) > 40, [test for test in named if not exists(test)]) == (True, [])


@pytest.mark.parametrize(
    "path", ["README.md", "CONTRIBUTING.md", "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))], ids=str
)
def it_names_targets_and_suites_of_make_that_exist(path):
    makefile, text = (ROOT / "Makefile").read_text(encoding="utf-8"), (ROOT / path).read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    suites = set(re.findall(r"^suite-(\w+) =", makefile, re.MULTILINE))
    assert set(re.findall(r"(?:^\$ |`)make ([a-z0-9-]+)", text, re.MULTILINE)) <= targets
    assert set(re.findall(r"SUITE=(\w+)", text)) <= suites


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```ruby\nputs 1\n```\n", "no test runs blocks of 'ruby'"),
        ("```console\n$ icecdc sync --tabel lake.shop.orders\n```\n", "did you mean --table"),
        ("```console\n$ icecdc services up --kafak\n```\n", "unknown"),
        ("```console\n$ make cake\n```\n", "make has no target cake"),
        ("```console\n$ kubectl apply\n```\n", "no test knows the program kubectl"),
        ("```console\nicecdc sync\n```\n", "it has no command"),
        ("```yaml\nkind: CronJob\n```\n", "it is no index file"),
        ("<!-- not run: no time -->\n```bash\nls\n```\n", "is none of the reasons"),
        ("<!-- run by: tests/unit/test_updates.py::it_is_gone -->\n```bash\nls\n```\n", "there is no test"),
    ],
)
def it_notices_a_new_block_that_nothing_runs(text, words):
    assert words in " ".join(problems_of(one(text)))


def it_reads_commands_with_their_output():
    block = one("```console\n$ first --a \\\n    b\nout 1\nout 2\n$ second\n```\n")
    assert commands_of(block) == [("first --a      b", "out 1\nout 2"), ("second", "")]
