"""README.md and docs/: what they show is run or checked, every link leads somewhere, and tests they name exist."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from icecdc_core.config import SyncConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.session.catalog import catalog_settings
from tests.checks.doc_blocks import all_blocks, commands_of, exists, problems_of
from tests.checks.index_file_schema import index_file_schema, ingest_file_schema
from tests.histories.lake import HISTORIES, KINDS, OPERATIONS

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "icecdc_core" / "config"
BLOCKS = all_blocks()
CONSOLES = [block for block in BLOCKS if block.language == "console" and not block.mark]
FILES = [block for block in BLOCKS if block.language == "yaml" and not block.mark]
CATALOGS = [block.text for block in BLOCKS if block.page == "docs/databricks.md" and block.language == "json"]


@pytest.mark.parametrize("block", CONSOLES, ids=lambda block: block.id)
def it_shows_commands_that_can_be_parsed(block):
    commands = commands_of(block)
    assert (len(commands) > 0, [problem for command, _ in commands for problem in problems_of(command)]) == (True, [])


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.id)
def it_shows_files_that_can_be_loaded(block, tmp_path):
    import jsonschema

    content = yaml.safe_load(block.text)
    section, kind = ("ingests", IngestConfig) if "ingests" in content else ("indexes", SyncConfig)
    schema = json.loads((CONFIG / f"{section}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(content)
    (tmp_path / "file.yml").write_text(block.text, encoding="utf-8")
    assert list(kind.load_all(tmp_path / "file.yml")) == list(content[section])


@pytest.mark.parametrize("example", CATALOGS)
def it_shows_catalogs_that_become_settings_without_a_reference_and_show_no_secret(example, monkeypatch):
    for name in [*re.findall(r"env:(\w+)", example), "DATABRICKS"]:
        monkeypatch.setenv(name, f"the {name}")
    properties = re.sub(r"secret:[\w/-]+", "env:DATABRICKS", example)
    config = SyncConfig(table="lake.shop.orders", catalog_properties=properties)
    assert [value for value in catalog_settings(config).values() if value.startswith(("env:", "secret:"))] == []
    assert "***" not in repr(config.catalog_properties)


@pytest.mark.parametrize(("section", "schema"), [("indexes", index_file_schema), ("ingests", ingest_file_schema)])
def it_ships_the_schema_as_the_code_makes_it(section, schema):
    # A parameter is a line.
    text = re.sub(r'("(?:parameters|properties)":) \{', r"\1 {\n", json.dumps(schema()))
    made = re.sub(r'}, ("\w+": \{"(?:description|\$ref|type)")', r"},\n\1", text) + "\n"
    file = CONFIG / f"{section}.schema.json"
    if os.environ.get("ICECDC_UPDATE_DOCS"):
        file.write_text(made, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == made


def it_lists_the_kinds_operations_and_histories_that_tests_go_through():
    page, mark = ROOT / "docs" / "guarantees.md", "<!-- made from tests/histories/lake.py -->\n"
    tried = {"Kinds of tables": [kind.name for kind in KINDS], "Operations": OPERATIONS, "Histories": HISTORIES}
    expected = "".join(f"- **{what}**: {'; '.join(names)}.\n" for what, names in tried.items())
    text = page.read_text(encoding="utf-8")
    listed = text.partition(mark)[2].partition("\n\n")[0] + "\n"
    if os.environ.get("ICECDC_UPDATE_DOCS"):
        page.write_text(text.replace(mark + listed, mark + expected), encoding="utf-8")
    assert listed == expected


def it_names_a_test_that_exists_for_each_promise_and_each_block_that_another_test_runs():
    text = "".join(page.read_text(encoding="utf-8") for page in ROOT.glob("docs/*.md"))
    named = re.findall(r"\]\(\.\./(tests/[\w/]+\.py)#([\w.]+)\)", text)
    tests = [f"{path}::{name.replace('.', '::')}" for path, name in named]
    runs = [block.says for block in BLOCKS if block.mark == "run by"]
    assert (len(tests) > 40, len(runs) > 3) == (True, True)
    assert [test for test in [*tests, *runs] if not exists(test)] == []


def it_builds_a_site_that_has_every_file_that_a_page_links_to_and_loads_nothing_from_elsewhere(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    given = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=given)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    tag = re.compile(r"<(?:script|link(?! rel=.canonical)|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^\s\">]+")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        links = re.findall(r'<a[^>]*\shref="?([^"\s>#?]+)', text)
        # The page for what is not found has links for the root of a server.
        local = [] if page.name == "404.html" else [href for href in links if ":" not in href]
        dead = [href for href in local if not (page.parent / href).exists()]
        assert (page.name, dead, tag.findall(text)) == (page.name, [], [])
