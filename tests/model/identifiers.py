"""Numbers for identifiers: those of the same history, row by row and operation by operation, are one.

The specification treats every identifier alike, and none of its steps depends on how many there are. So one stands for
all others with the same history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Event = dict[str, Any]


def identifiers(events: list[Event], rows: Mapping[Any, Mapping[str, str]]) -> tuple[dict[str, int], dict[Any, str]]:
    """Return the number of each identifier, and a name for each of its values."""
    lives: dict[str, list[Any]] = {}
    named: dict[str, dict[str, str]] = {}

    def lived(identity: str, when: Any, value: str | None, *what: Any) -> None:
        names = named.setdefault(identity, {})
        if value is not None:
            names.setdefault(value, f'"v{len(names) + 1}"')
        lives.setdefault(identity, []).append((when, value and names[value], *what))

    for snapshot, content in rows.items():
        for identity, value in content.items():
            lived(identity, ("row", snapshot), value)
    for number, event in enumerate(events):
        if event["event"] == "bulk":
            for op, identity, version, status, value in event["items"]:
                lived(identity, number, value, op, version, status)
        elif event["event"] == "foreign":
            lived(event["id"], number, event["value"], event["version"])
    classes: dict[tuple[Any, ...], int] = {}
    ids = {identity: classes.setdefault(tuple(life), len(classes) + 1) for identity, life in lives.items()}
    values = {(identity, value): name for identity, names in named.items() for value, name in names.items()}
    return ids, values
