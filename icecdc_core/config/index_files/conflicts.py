"""Which indexes of a file would overwrite each other, or mix their dead letters or metrics; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any


def find_overwritten_indexes(made: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The indexes that an index before them in the file has already, by name, with the problem."""
    owners: dict[tuple[str, ...], str] = {}
    for name, config in made.items():
        # Another positions_index is no other index: each entry would delete what the other one exported.
        key = (config.opensearch_url.lower(), config.index)
        owner = owners.setdefault(key, name)
        if owner != name:
            problem = f"indexes.{name}.index: {config.index!r} is also the index of indexes.{owner}"
            for either in (name, owner):
                yield either, f"{problem}. Remedy: give one of them another index."


def find_mixed_outputs(chosen: Mapping[str, Any]) -> list[str]:
    """The problems of indexes of one name, on different clusters, that would mix their dead letters or metrics."""
    problems = []
    for (owner, first), (name, second) in combinations(chosen.items(), 2):
        if first.index != second.index or first.opensearch_url.lower() == second.opensearch_url.lower():
            continue
        shared = {
            # Dead letters name index and table, but no cluster; metrics name a job and an index.
            "dead_letter_table": _dead_letter_key(first) == _dead_letter_key(second),
            "metrics_folder": bool(first.metrics_folder) and _folder(first) == _folder(second),
            "metrics_url": bool(first.metrics_url) and first.metrics_url == second.metrics_url,
        }
        problems += [
            f"indexes.{name}.{parameter}: is the same as in indexes.{owner}, which also has the index {first.index!r}. "
            f"Remedy: give one of them another {parameter} or another index."
            for parameter, is_shared in shared.items()
            if is_shared
        ]
    return problems


def _dead_letter_key(config: Any) -> tuple[object, ...]:
    return config.table, config.dead_letter_parts


def _folder(config: Any) -> Path:
    return Path(config.metrics_folder).absolute()
