"""Which cells of a notebook set its parameters, and what of a name that is no parameter; pure."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any


class ParametersCell:
    """The cells that set parameters, from the history that IPython keeps under `In`.

    Tags are not to be seen from inside a notebook, and Databricks has none. So the parameters cell is the one that sets
    a required parameter, and of several the one that sets most; of equal ones the latest. What cells before it set are
    the user's own names. Cells after it may override parameters.

    Args:
        namespace: The notebook's `globals()`.
        known: The names of all parameters.
        required: Those without a default.
    """

    def __init__(self, namespace: Mapping[str, Any], known: Collection[str], required: Collection[str]) -> None:
        history = namespace.get("In")
        cells = [_tree(source) for source in history[:-1]] if isinstance(history, Sequence) else []
        assigned = [_assigned(cell) for cell in cells]
        ranks = [(bool(names & {*required}), len(names & {*known}), at) for at, names in enumerate(assigned)]
        _, count, start = max(ranks, default=(False, 0, 0))
        self._own = set().union(*assigned[:start]) - set().union(*assigned[start:]) if count else set()
        self._cells = cells[start:] if count else cells[-1:]

    def sets(self, name: str) -> bool:
        """Whether a value of this name may be a parameter; without a history any may."""
        return name not in self._own

    @property
    def names(self) -> list[str]:
        """The names that cells of nothing but plain assignments set, parameters or not: papermill's cell is one."""
        found = [target for cell in self._cells if _is_plain(cell) for target in _targets(cell)]
        return list(dict.fromkeys(found))


def likely_meant(name: str, known: Collection[str]) -> str:
    """The parameter that a name was probably meant to be, "" for none.

    Jobs pass names of their own to every notebook, such as `warehouse_id`, so only a slip of one or two letters counts.
    """
    written = name.lower().replace("-", "_")
    for near in difflib.get_close_matches(written, known, n=3):
        blocks = difflib.SequenceMatcher(None, written, near, autojunk=False).get_matching_blocks()
        differing = len(written) + len(near) - 2 * sum(block.size for block in blocks)
        if differing <= (2 if len(written) > 4 else 1):
            return near
    return ""


def _tree(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.Module([], [])


def _assigned(cell: ast.Module) -> set[str]:
    """Every name that a cell sets, wherever it does."""
    return {node.id for node in ast.walk(cell) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _is_plain(cell: ast.Module) -> bool:
    return all(isinstance(statement, (ast.Assign, ast.AnnAssign)) for statement in cell.body)


def _targets(cell: ast.Module) -> list[str]:
    found: list[str] = []
    for statement in cell.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        found += [target.id for target in targets if isinstance(target, ast.Name)]
    return found
