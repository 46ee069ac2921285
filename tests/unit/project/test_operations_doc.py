"""docs/monitoring.md lists every event of the log by its message."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import icecdc_core

PACKAGE = Path(icecdc_core.__file__).parent
TEXT = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")
TABLE = TEXT.split("| Message | Level | Fields |")[1].split("\n\n")[0]
DOCUMENTED = {message.removesuffix(": ...") for message in re.findall(r"^\| `([^`]+)`", TABLE, re.MULTILINE)}


def logged() -> set[str]:
    """The messages in calls of `event`, up to their first variable part."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "event" and node.args:
                first = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
                if isinstance(first, ast.Constant):
                    found.add(first.value.partition(": ")[0])
    return found


def it_lists_every_event():
    assert logged() - DOCUMENTED == set()


def it_lists_no_event_that_does_not_exist():
    sources = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    assert [message for message in DOCUMENTED if message not in sources] == []
