"""docs/log-events.md lists every event of the log by its message, with its level and its fields."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import icecdc_core

PACKAGE = Path(icecdc_core.__file__).parent
TEXT = (Path(__file__).parents[3] / "docs" / "log-events.md").read_text(encoding="utf-8")
CHANGELOG = (Path(__file__).parents[3] / "CHANGELOG.md").read_text(encoding="utf-8")
TABLE = TEXT.split("| Message | Level | Fields |")[1].split("\n\n")[0]
ROWS = re.findall(r"^\| `([^`]+)`[^|]*\| (\w+) \| ([^|]*) ?\|", TABLE, re.MULTILINE)
DOCUMENTED = {message.removesuffix(": ...") for message in re.findall(r"^\| `([^`]+)`", TABLE, re.MULTILINE)}


@cache
def logged() -> list[tuple[str, ast.Call]]:
    """The calls of `event`, with their messages up to the first variable part."""
    return list(_logged())


def _logged() -> Iterator[tuple[str, ast.Call]]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "event" and node.args:
                first = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
                if isinstance(first, ast.Constant):
                    yield first.value.partition(": ")[0], node


def it_lists_every_event():
    assert {message for message, _ in logged()} - DOCUMENTED == set()


def it_lists_the_level_of_every_event():
    levels = {message.removesuffix(": ..."): level for message, level, _ in ROWS}
    wrong = [
        (message, level.attr)
        for message, call in logged()
        for level in [*call.args[1:], *(each.value for each in call.keywords if each.arg == "level")]
        if isinstance(level, ast.Attribute) and level.attr.lower() != levels[message]
    ]
    assert wrong == []


def it_lists_the_fields_that_an_event_names():
    fields = {message.removesuffix(": ..."): re.findall(r"`(\w+)`", names) for message, _, names in ROWS}
    named = {
        (message, each.arg) for message, call in logged() for each in call.keywords if each.arg not in (None, "level")
    }
    assert sorted((message, name) for message, name in named if name not in fields[message]) == []


def it_lists_no_event_that_does_not_exist():
    sources = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    assert [message for message in DOCUMENTED if message not in sources] == []


def it_lists_the_new_name_of_every_renamed_event():
    renamed = re.findall(r"^\| event `[^`]+`[^|]*\| `([^`]+)`", CHANGELOG, re.MULTILINE)
    assert (bool(renamed), {message.removesuffix(": ...") for message in renamed} - DOCUMENTED) == (True, set())
