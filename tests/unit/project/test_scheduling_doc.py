"""The examples for schedulers: each command is one of icecdc."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from icecdc_core.cli import parse

FILES = sorted((Path(__file__).parents[3] / "docs" / "examples").glob("icecdc*"))
# From "icecdc" to where the shell's command ends.
COMMAND = re.compile(r"\bicecdc (?:sync|validate) --[^>\n']*?(?= >>|'|`|$)", re.MULTILINE)
COMMANDS = [text for path in FILES for text in COMMAND.findall(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("text", COMMANDS)
def it_shows_commands_with_options_that_exist(text):
    assert parse(shlex.split(text.rstrip(", "))[1:]).file in ("indexes.yml", "$ICECDC_FILE")


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".py"], ids=lambda path: path.name)
def it_is_python(path):
    ast.parse(path.read_text(encoding="utf-8"))
