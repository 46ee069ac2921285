"""Wrong traces, made out of recorded ones: what a wrong implementation would have left behind.

Each function changes the events of a recorded trace in one way. A check that cannot fail is no check, so TLC must
refuse every one of them, see `test_traces.py`.
"""

import copy
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

Event = dict[str, Any]
Events = list[Event]


def _writes(events: Events) -> list[int]:
    return [n for n, event in enumerate(events) if event["event"] == "position" and event["accepted"]]


def _batch(event: Event) -> Event:
    return event["position"]["batch"] or {}


def _commits(events: Events) -> list[int]:
    places = _writes(events)
    return [n for before, n in pairwise(places) if _batch(events[before]) and not _batch(events[n])]


def _bulks(events: Events) -> list[int]:
    return [n for n, event in enumerate(events) if event["event"] == "bulk" and event["items"]]


def _last_bulk_before(events: Events, place: int) -> int:
    return max(n for n in _bulks(events) if n < place)


def _move(events: Events, source: int, target: int) -> None:
    events.insert(target, events.pop(source))


def old_operation_applies(events: Events) -> None:
    """An operation of an earlier batch is executed again, and OpenSearch applies it over the newer document."""
    (old, *_), newest = events[_bulks(events)[0]]["items"], _bulks(events)[-1]
    again = {"event": "bulk", "index": events[newest]["index"], "items": [[*old[:3], 200, old[4]]]}
    events.insert(newest + 1, again)


def commit_without_the_last_bulk(events: Events) -> None:
    """The position moves although the last request of the batch was never executed."""
    del events[_last_bulk_before(events, _commits(events)[-1])]


def one_document_too_many(events: Events) -> None:
    """A request has a document that the table does not have."""
    items = events[_bulks(events)[-1]]["items"]
    items.append(["index", "no such row", *items[0][2:]])


def write_before_begin(events: Events) -> None:
    """Documents are written before their batch is recorded."""
    epochs = [(_batch(events[n]).get("epoch"), n) for n in _writes(events)]
    begin = max(n for (before, _), (epoch, n) in pairwise(epochs) if epoch not in (None, before))
    _move(events, next(n for n in _bulks(events) if n > begin), begin)


def commit_by_the_loser_of_the_lock(events: Events) -> None:
    """The write that was refused, because another run has the lock, succeeds."""
    refused = max(n for n, event in enumerate(events) if event["event"] == "position" and not event["accepted"])
    events[refused]["accepted"] = True


def replay_with_another_range(events: Events) -> None:
    """The run that goes on with a begun batch reaches another snapshot than the one that was begun."""
    (known, *_) = (event["id"] for event in events if event["event"] == "snapshot")
    events[_commits(events)[-1]]["position"]["snapshot_id"] = known


def cut_is_forgotten(events: Events) -> None:
    """A longer batch does not read the snapshot of the begun one that it replaces."""
    for event in events:
        if event["event"] == "position" and _batch(event):
            _batch(event)["cuts"] = []


def alias_before_the_last_group(events: Events) -> None:
    """Readers see an index before all groups of its export are written."""
    move = next(n for n, event in enumerate(events) if event["event"] == "alias" and event["indexes"])
    _move(events, move, _last_bulk_before(events, move))


def index_is_never_created(events: Events) -> None:
    del events[next(n for n, event in enumerate(events) if event["event"] == "create")]


TAMPERINGS: dict[Callable[[Events], None], tuple[str, str]] = {
    old_operation_applies: ("longer-batch", "version 3 answers 200"),
    commit_without_the_last_bulk: ("repair", "batch None"),
    one_document_too_many: ("resumed-export", "'no such row'"),
    write_before_begin: ("repair", "delete of '9'"),
    commit_by_the_loser_of_the_lock: ("stalled-export", "batch None"),
    replay_with_another_range: ("replayed-sync", "batch None"),
    cut_is_forgotten: ("longer-batch", "'cuts': []"),
    alias_before_the_last_group: ("resumed-export", "the alias moves"),
    index_is_never_created: ("stalled-export", "'made': True"),
}
"""The changes, each with the recorded trace that it is made to, and what the event is that TLC refuses."""


def tampered(change: Callable[[Events], None], recorded: dict[str, Any]) -> dict[str, Any]:
    copied = copy.deepcopy(recorded)
    change(copied["events"])
    assert json.dumps(copied) != json.dumps(recorded), f"{change.__name__} changes nothing"
    return {**copied, "test": change.__name__}
