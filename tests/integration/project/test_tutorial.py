"""docs/tutorial.md, from the first command to the last before its how-tos, with the output that it shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from icecdc_core.__main__ import main
from tests.doc_blocks import blocks_of, commands_of, words_of

PRINTED = "http://127.0.0.1:9200"
PAGE = (Path(__file__).parents[3] / "docs" / "tutorial.md").read_text(encoding="utf-8")
PARTS = [each for each in blocks_of(PAGE.partition("\n## How to\n")[0], "docs/tutorial.md") if each.mark != "not run"]
INDEX_FILE = next(block for block in PARTS if block.title == "indexes.yml")


def plain(output: str) -> object:
    """An output without what differs from run to run: seconds, the width of columns, the order of JSON's fields."""
    if output.startswith("{"):
        return json.loads(output)
    return re.sub(r"\d+\.\d\b", "N", re.sub(r"[ \t]+", " ", output)).strip()


def parts():
    """The parts of the tutorial in their order: files to write, and commands with their output."""
    for block in PARTS:
        if block.title:
            yield block.title, block.text
        else:
            yield from commands_of(block)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def it_shows_what_happens(spark, warehouse, opensearch, opensearch_url, folder, capsys):
    """In this process and on this test's OpenSearch, which takes seconds; the commands are the same."""
    differences, names = [], {block.title for block in PARTS if block.title}
    for what, text in parts():
        if what in names:
            own = text.replace(PRINTED, f"{opensearch_url}\n  positions_index: positions-tutorial")
            own = own.replace("warehouse: warehouse", f"warehouse: {warehouse}")  # the catalog of this session
            Path(what).write_text(own, encoding="utf-8")
            continue
        words = words_of(what)
        capsys.readouterr()
        if words[:2] == ["icecdc", "services"]:
            continue
        if words[0] == "python":
            exec(compile(Path(words[1]).read_text(encoding="utf-8"), words[1], "exec"), {})
            continue
        if words[0] == "curl":
            (url,) = (word for word in words if word.startswith(PRINTED))
            with urllib.request.urlopen(url.replace(PRINTED, opensearch_url)) as answer:
                actual = answer.read().decode()
        else:
            assert words[0] == "icecdc"
            assert main(words[1:], "icecdc") == 0
            actual = capsys.readouterr().out
        differences += [] if plain(actual) == plain(text) else [(what, actual, text)]
    spark.sql("DROP TABLE lake.shop.books")
    opensearch.indices.delete(index="books-*,positions-tutorial", params={"expand_wildcards": "all"})
    assert differences == []


@pytest.mark.long
def it_runs_in_a_folder_of_its_own(folder, tmp_path_factory):
    """As a reader does it: each command is a process, and the services are those that it starts."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    url, differences, names = PRINTED, [], {block.title for block in PARTS if block.title}
    try:
        for what, text in parts():
            if what in names:
                Path(what).write_text(text.replace(PRINTED, url), encoding="utf-8")
                continue
            words = [word.replace(PRINTED, url) for word in words_of(what)]
            ended = subprocess.run(words, env=environment, capture_output=True, text=True)
            assert ended.returncode == 0, ended.stderr
            if words[:3] == ["icecdc", "services", "up"]:
                url = re.search(r"http://[\d.:]+", ended.stdout)[0]
            elif text and plain(ended.stdout) != plain(text):
                differences.append((what, ended.stdout, text))
    finally:
        subprocess.run(["icecdc", "services", "down", "--remove-data"], env=environment)
    assert differences == []
