"""How far a recorded trace can be compared: until something happens that the specification does not speak of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Event = dict[str, Any]

EXECUTED = {200: True, 201: True, 404: True, 409: False}
"""Statuses of operations that were executed, and whether they were applied."""
BUSY = {429, 503}
"""Statuses of operations that were not executed."""


class NotInModelError(Exception):
    """From here on something happened that the specification does not speak of."""


def comparable(events: list[Event]) -> tuple[list[Event], str]:
    """Return the events until something happens that the specification excludes, and what that is."""
    kept: list[Event] = []
    snapshots = {event["id"]: event for event in events if event["event"] == "snapshot"}
    last: Event = {}
    beginner: str | None = None
    for number, event in enumerate(events):
        try:
            _require_known(event, snapshots, last)
            beginner = _beginner(event, last, beginner)
        except NotInModelError as reason:
            goes_on = any(later["event"] in ("position", "bulk") for later in events[number + 1 :])
            return kept, str(reason) if goes_on else ""
        if event["event"] == "position" and event["accepted"]:
            last = event
        if not event.get("foreign"):
            kept.append(event)
    return kept, ""


def _require_known(event: Event, snapshots: Mapping[Any, Event], last: Event) -> None:
    if event["event"] == "end":
        raise NotInModelError(event["reason"])
    if event["event"] == "position":
        if event.get("foreign") and _essence(event) != _essence(last):
            raise NotInModelError("somebody else changed the position")
        for name in named_snapshots(event["position"]):
            if name is not None and "rows" not in snapshots.get(name, {}):
                raise NotInModelError(f"a snapshot is unknown: {snapshots.get(name, {}).get('unknown')}")
    if event["event"] == "bulk":
        for _, _, version, status, _ in event["items"]:
            if version is None:
                raise NotInModelError("somebody else wrote documents")
            if status not in EXECUTED and status not in BUSY:
                raise NotInModelError("OpenSearch rejected a document")


def _beginner(event: Event, last: Event, beginner: str | None) -> str | None:
    """Return the run that began the batch of the position."""
    if event["event"] != "position" or not event["accepted"]:
        return beginner
    batch, before = event["position"]["batch"], last["position"]["batch"] if last else None
    if not batch or (before and batch["epoch"] == before["epoch"]):
        return beginner
    if before and before["kind"] == "export" and event["owner"] == beginner:
        raise NotInModelError("a run starts its own export over, because the snapshot expired")
    owner: str | None = event["owner"]
    return owner


def _essence(event: Event) -> tuple[Any, Any]:
    return event.get("owner"), event.get("position")


def named_snapshots(position: Mapping[str, Any]) -> list[Any]:
    """Return the snapshots that a position names, the cuts of its batch first."""
    named = [position["snapshot_id"]] if position["physical_index"] else []
    if batch := position["batch"]:
        named += [*(batch["cuts"] or []), batch["to_snapshot_id"]]
    return named
