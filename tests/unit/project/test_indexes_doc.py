"""The JSON schema in the package is the one of the parameters, and the files in docs/indexes.md fit it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.doc_blocks import all_blocks
from tests.index_file_schema import index_file_schema

SCHEMA = Path(__file__).parents[3] / "icecdc_core" / "config" / "indexes.schema.json"
FILES = [block for block in all_blocks() if block.language == "yaml" and not block.mark]


def it_ships_the_schema_as_the_code_makes_it():
    expected = json.dumps(index_file_schema(), indent=2) + "\n"
    if os.environ.get("ICECDC_UPDATE_DOCS"):
        SCHEMA.write_text(expected, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == expected


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.id)
def it_accepts_every_index_file_of_the_documentation(block):
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(yaml.safe_load(block.text))
