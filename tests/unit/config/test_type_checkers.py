"""What type checkers and editors see of the parameters; none of them needs a plugin."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "icecdc_core"
MODULES = ("config/sync.py", "config/model.py", "explore/config.py", "ingest/config.py")


@pytest.mark.parametrize("module", MODULES)
def it_names_each_default_because_a_parameter_counts_as_required_otherwise(module: str):
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert [node.lineno for node in calls if node.func.id == "Field" and node.args] == []
