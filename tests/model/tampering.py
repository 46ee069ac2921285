"""Wrong traces, made out of recorded ones: what a wrong implementation would have left behind.

Each function changes the events of a recorded trace in one way. A check that cannot fail is no check, so TLC must
refuse every one of them, see `test_traces.py`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

Event = dict[str, Any]
Events = list[Event]


def _writes(events: Events) -> list[int]:
    """Where the position is written."""
    return [n for n, event in enumerate(events) if event["event"] == "position" and event["accepted"]]


def _batch(event: Event) -> Event:
    return event["position"]["batch"] or {}


def _commits(events: Events) -> list[int]:
    """Where the position moves."""
    places = _writes(events)
    return [n for before, n in pairwise(places) if _batch(events[before]) and not _batch(events[n])]


def _begins(events: Events) -> list[int]:
    """Where batches are begun."""
    places = _writes(events)
    epochs = [(_batch(events[n]).get("epoch"), n) for n in places]
    pairs = pairwise(epochs)
    return [n for (before, _), (epoch, n) in pairs if epoch is not None and epoch != before]


def _progresses(events: Events) -> list[int]:
    """Where file groups of exports are recorded."""
    done = [(n, _batch(events[n]).get("groups_done", 0)) for n in _writes(events)]
    return [n for (_, before), (n, after) in pairwise(done) if after > before]


def _bulks(events: Events) -> list[int]:
    return [n for n, event in enumerate(events) if event["event"] == "bulk" and event["items"]]


def _moves(events: Events) -> list[int]:
    return [n for n, event in enumerate(events) if event["event"] == "alias" and event["indexes"]]


def _last_bulk_before(events: Events, place: int) -> int:
    return max(n for n in _bulks(events) if n < place)


def _move(events: Events, source: int, target: int) -> None:
    events.insert(target, events.pop(source))


def epoch_used_twice(events: Events) -> None:
    """A batch gets the epoch of the one before, and its documents their versions."""
    first, second = (_batch(events[n])["epoch"] for n in _begins(events)[:2])
    for event in events:
        if event["event"] == "position":
            for holder in (event["position"], _batch(event)):
                if holder.get("epoch") == second:
                    holder["epoch"] = first
        for item in event.get("items", ()):
            item[2] -= 2 * (second - first) if item[2] // 2 == second else 0


def epoch_falls(events: Events) -> None:
    """A batch gets an epoch below all before."""
    for event in events[_begins(events)[1] :]:
        if event["event"] == "position" and _batch(event):
            event["position"]["epoch"] = _batch(event)["epoch"] = 0


def old_operation_applies(events: Events) -> None:
    """An operation of an earlier batch is executed again, and OpenSearch applies it over the newer document."""
    (old, *_), newest = events[_bulks(events)[0]]["items"], _bulks(events)[-1]
    again = {"event": "bulk", "index": events[newest]["index"], "items": [[*old[:3], 200, old[4]]]}
    events.insert(newest + 1, again)


def older_version_applies(events: Events) -> None:
    """A document gets the version of an earlier batch."""
    for item in events[_bulks(events)[-1]]["items"]:
        item[2] -= 2


def newer_version_refused(events: Events) -> None:
    """OpenSearch refuses an operation that is newer than its document."""
    for item in events[_bulks(events)[-1]]["items"]:
        item[3] = 409


def versions_of_delete_and_upsert_swapped(events: Events) -> None:
    """An upsert has the version of a delete, and the other way round."""
    for item in events[_bulks(events)[-1]]["items"]:
        item[2] ^= 1


def commit_without_the_last_bulk(events: Events) -> None:
    """The position moves although the last request of the batch was never executed."""
    del events[_last_bulk_before(events, _commits(events)[-1])]


def commit_before_the_last_bulk(events: Events) -> None:
    """The position moves before the last request of the batch is executed."""
    commit = _commits(events)[-1]
    _move(events, commit, _last_bulk_before(events, commit))


def one_document_is_missing(events: Events) -> None:
    """One row of the batch is in no request."""
    for place in _bulks(events):
        events[place]["items"] = events[place]["items"][1:]


def one_document_too_many(events: Events) -> None:
    """A request has a document that the table does not have."""
    items = events[_bulks(events)[-1]]["items"]
    items.append(["index", "no such row", *items[0][2:]])


def content_of_another_snapshot(events: Events) -> None:
    """A document is not what its row was in the snapshot of the batch."""
    for item in events[_bulks(events)[-1]]["items"]:
        item[0], item[2], item[4] = "index", item[2] | 1, "00000000"


def write_before_begin(events: Events) -> None:
    """Documents are written before their batch is recorded."""
    begin = _begins(events)[-1]
    _move(events, next(n for n in _bulks(events) if n > begin), begin)


def begin_while_another_run_has_the_lock(events: Events) -> None:
    """A run begins a batch that does not have the lock."""
    events[_begins(events)[-1]]["owner"] = "a run without the lock"


def commit_by_the_loser_of_the_lock(events: Events) -> None:
    """The write that was refused, because another run has the lock, succeeds."""
    refused = max(n for n, event in enumerate(events) if event["event"] == "position" and not event["accepted"])
    events[refused]["accepted"] = True


def commit_by_a_run_that_never_had_the_lock(events: Events) -> None:
    """The position moves in the name of another run."""
    events[_commits(events)[-1]]["owner"] = "a run without the lock"


def replay_with_another_range(events: Events) -> None:
    """The run that goes on with a begun batch reaches another snapshot than the one that was begun."""
    (known, *_) = (event["id"] for event in events if event["event"] == "snapshot")
    events[_commits(events)[-1]]["position"]["snapshot_id"] = known


def batch_from_another_snapshot(events: Events) -> None:
    """A batch begins at a snapshot that is not the position's."""
    for event in events:
        if event["event"] == "position" and _batch(event).get("kind") == "sync":
            _batch(event)["from_snapshot_id"] = _batch(event)["to_snapshot_id"]


def cut_is_forgotten(events: Events) -> None:
    """A longer batch does not read the snapshot of the begun one that it replaces."""
    for event in events:
        if event["event"] == "position" and _batch(event):
            _batch(event)["cuts"] = []


def lock_forgets_the_begun_batch(events: Events) -> None:
    """Whoever acquires the lock removes the begun batch."""
    places = _writes(events)
    owners = [(n, events[n]["owner"], events[before]["owner"]) for before, n in pairwise(places)]
    lock = next(n for n, owner, before in owners if owner not in (None, before) and _batch(events[n]))
    events[lock]["position"]["batch"] = None


def alias_before_the_last_group(events: Events) -> None:
    """Readers see an index before all groups of its export are written."""
    move = _moves(events)[0]
    _move(events, move, _last_bulk_before(events, move))


def alias_moves_to_an_old_index(events: Events) -> None:
    """Readers see an index that no export has built."""
    events[_moves(events)[-1]]["indexes"] = [99]


def group_recorded_before_it_is_written(events: Events) -> None:
    """The last file group is recorded, and then the readers' alias moves, before its documents are written."""
    last = _progresses(events)[-1]
    _move(events, _last_bulk_before(events, last), next(n for n in _moves(events) if n > last) + 1)


def group_is_skipped(events: Events) -> None:
    """The export that is resumed counts one group more than was written."""
    for event in events[_progresses(events)[1] :]:
        if event["event"] == "position" and _batch(event):
            _batch(event)["groups_done"] += 1


def index_is_never_created(events: Events) -> None:
    """An export records an index that nobody created."""
    del events[next(n for n, event in enumerate(events) if event["event"] == "create")]


def index_of_readers_is_deleted(events: Events) -> None:
    """The index that readers see is deleted."""
    move = _moves(events)[0]
    events.insert(_commits(events)[0] + 1, {"event": "delete", "index": events[move]["indexes"][0]})


TAMPERINGS: dict[Callable[[Events], None], tuple[str, str]] = {
    epoch_used_twice: ("longer-batch", "batch {'kind': 'sync', 'epoch': 1"),
    epoch_falls: ("longer-batch", "batch {'kind': 'export'"),
    old_operation_applies: ("longer-batch", "version 3 answers 200"),
    older_version_applies: ("longer-batch", "version 5 answers 200"),
    newer_version_refused: ("longer-batch", "version 7 answers 409"),
    versions_of_delete_and_upsert_swapped: ("replayed-sync", "index of '2' with version 4"),
    commit_without_the_last_bulk: ("repair", "batch None"),
    commit_before_the_last_bulk: ("repair", "batch None"),
    one_document_is_missing: ("resumed-export", "the alias moves"),
    one_document_too_many: ("resumed-export", "'no such row'"),
    content_of_another_snapshot: ("replayed-sync", "index of '2'"),
    write_before_begin: ("repair", "delete of '9'"),
    begin_while_another_run_has_the_lock: ("longer-batch", "batch {'kind': 'sync', 'epoch': 3"),
    commit_by_the_loser_of_the_lock: ("stalled-export", "batch None"),
    commit_by_a_run_that_never_had_the_lock: ("longer-batch", "batch None"),
    replay_with_another_range: ("replayed-sync", "batch None"),
    batch_from_another_snapshot: ("replayed-sync", "batch {'kind': 'sync'"),
    cut_is_forgotten: ("longer-batch", "'cuts': []"),
    lock_forgets_the_begun_batch: ("replayed-sync", "batch None"),
    alias_before_the_last_group: ("resumed-export", "the alias moves"),
    alias_moves_to_an_old_index: ("stalled-export", "the alias moves to [99]"),
    group_recorded_before_it_is_written: ("resumed-export", "the alias moves"),
    group_is_skipped: ("resumed-export", "'groups_done': 3"),
    index_is_never_created: ("stalled-export", "'made': True"),
    index_of_readers_is_deleted: ("stalled-export", "index 1 is deleted"),
}
"""The changes, each with the recorded trace that it is made to, and what the event is that TLC refuses."""


def tampered(change: Callable[[Events], None], recorded: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded trace with one change."""
    copied = copy.deepcopy(recorded)
    change(copied["events"])
    assert json.dumps(copied) != json.dumps(recorded), f"{change.__name__} changes nothing"
    return {**copied, "test": change.__name__}
