"""The JSON schema in the package is the one of the parameters, and the files in docs/indexes.md can be loaded."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from icecdc_core.config import SyncConfig
from icecdc_core.config.index_file import ONLY_IN_AN_INDEX
from tests.index_file_schema import index_file_schema

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "icecdc_core" / "config" / "indexes.schema.json"
PAGE = (ROOT / "docs" / "indexes.md").read_text(encoding="utf-8")
FILES = [text for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "indexes:" in text]


def it_ships_the_schema_as_the_code_makes_it():
    expected = json.dumps(index_file_schema(), indent=2) + "\n"
    if os.environ.get("ICECDC_UPDATE_DOCS"):
        SCHEMA.write_text(expected, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == expected


@pytest.mark.parametrize("text", FILES)
def it_shows_files_that_can_be_loaded_and_fit_the_schema(text, tmp_path: Path):
    path = tmp_path / "indexes.yml"
    path.write_text(text, encoding="utf-8")
    assert list(SyncConfig.load_all(path)) == list(yaml.safe_load(text)["indexes"])
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(yaml.safe_load(text))


def it_names_the_schema_of_the_package():
    (named,) = re.findall(r"yaml-language-server: \$schema=(\S+)", PAGE)
    assert (ROOT / named) == SCHEMA


def it_lists_the_parameters_that_cannot_be_shared():
    (listed,) = re.findall(r"cannot be in `defaults`: (.*?)\.\n", PAGE)
    assert re.findall(r"`(\w+)`", listed) == [*ONLY_IN_AN_INDEX]
