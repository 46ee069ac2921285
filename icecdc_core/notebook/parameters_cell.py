"""Find the cells that set the parameters of a notebook, and names that are misspelt parameters; pure."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any


class ParametersCell:
    """The cells that set parameters, from IPython's history in `In`.

    A notebook cannot read its cell tags, and Databricks has none. So the parameters cell is the one that sets a
    required parameter; among several, the one that sets most parameters; among equals, the latest. Names that earlier
    cells set are the user's own. Later cells may override parameters.
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
        """Whether the value of this name may be a parameter; without a history every name may."""
        return name not in self._own

    @property
    def names(self) -> list[str]:
        """All names that are set by cells of plain assignments only, such as papermill's cell."""
        found = [target for cell in self._cells if _is_plain(cell) for target in _targets(cell)]
        return list(dict.fromkeys(found))


def likely_meant(name: str, known: Collection[str]) -> str:
    """Return the parameter that a misspelt name probably means, "" for none.

    Jobs pass their own names to every notebook, such as `warehouse_id`, so only one or two wrong letters count.
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
    """All names that a cell sets, in any statement."""
    return {node.id for node in ast.walk(cell) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _is_plain(cell: ast.Module) -> bool:
    return all(isinstance(statement, (ast.Assign, ast.AnnAssign)) for statement in cell.body)


def _targets(cell: ast.Module) -> list[str]:
    found: list[str] = []
    for statement in cell.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        found += [target.id for target in targets if isinstance(target, ast.Name)]
    return found
