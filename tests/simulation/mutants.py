"""Wrong code: each mutant changes one rule in the source of one function. The simulation must notice every one.

Only here tests name private functions: a mutant changes their source, whoever calls them.
"""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from icecdc_core.commits.store import IndexLock, PositionStore
from icecdc_core.documents import bulk_lines
from icecdc_core.jobs import export, repair, sync
from icecdc_core.opensearch import bulk, indexes
from icecdc_core.opensearch.bulk import BulkWriter
from icecdc_core.runs import batch, plan
from icecdc_core.runs.run import Run
from tests.simulation import simulated_jobs


@dataclass(frozen=True)
class Change:
    owner: Any
    function: str
    before: str
    after: str
    users: tuple[Any, ...] = ()

    def changed(self) -> Any:
        original: Any = getattr(self.owner, self.function)
        source = textwrap.dedent(inspect.getsource(original))
        assert source.count(self.before) == 1, f"{self.function} has {source.count(self.before)} times {self.before!r}"
        names = inspect.unwrap(original).__globals__
        made: dict[str, Any] = {}
        text = f"from __future__ import annotations\n{source.replace(self.before, self.after)}"
        exec(compile(text, f"<mutant of {self.function}>", "exec"), names, made)
        return made[self.function]


class Mutant:
    """Changes that at least one of these invariants notices after at most so many schedules."""

    def __init__(self, name: str, invariants: tuple[str, ...], *changes: Change, schedules: int = 200) -> None:
        self.name, self.invariants, self.changes, self.schedules = name, invariants, changes, schedules

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for change in self.changes:
                function: Callable[..., Any] = change.changed()
                for owner in (change.owner, *change.users):
                    stack.enter_context(mock.patch.object(owner, change.function, function))
            yield


INDEX, READERS, ALIAS = "IndexIsSnapshot", "ReadersSeeWholeExports", "ReadersSeeTheCommittedIndex"
UNIQUE, GROW, RECOVERY, REFUSALS = "EpochsAreUnique", "EpochsGrow", "Recovery", "Refusals"
LOGGED, FORWARD, CURRENT, KEPT = "CommitsAreLogged", "IndexGoesForward", "CurrentAtIsTrue", "LocksAreKept"

MUTANTS = [
    Mutant("the position is written without a condition", (GROW, UNIQUE, INDEX, ALIAS),
        Change(PositionStore, "write", "_only_if(version)", "{} if version else _only_if(None)")),
    Mutant("the position moves before the commit log has the batch", (LOGGED,),
        Change(IndexLock, "commit", "self._store.append_log(self.batch.epoch, log)\n"
        "    self.write(replace(position, batch=batch, largest=self.largest))", "epoch = self.batch.epoch\n"
        "    self.write(replace(position, batch=batch, largest=self.largest))\n"
        "    self._store.append_log(epoch, log)")),
    Mutant("documents are written before their batch is recorded", (UNIQUE,),
        Change(sync, "_sync_batch", "lock.begin(batch)",
        "lock.position = replace(lock.position, batch=batch, epoch=epoch)")),
    Mutant("the position moves before the documents are written", (INDEX,),
        Change(IndexLock, "begin", "epoch=batch.epoch))",
        "epoch=batch.epoch, snapshot_id=batch.to_snapshot_id if batch.kind == 'sync' else "
        "self.position.snapshot_id, identity=''))")),
    Mutant("a batch after one that was not repeated has its epoch", (UNIQUE, GROW, INDEX),
        Change(IndexLock, "next_epoch", "epoch + 1", "epoch + (self.position.batch is None)")),
    Mutant("a begun batch is repeated with a new epoch", (UNIQUE,),
        Change(sync, "_sync_batch", "plan.replayed.epoch if plan.replayed else lock.next_epoch", "lock.next_epoch")),
    Mutant("a batch does not read the snapshot of the one that was not repeated", (INDEX,),
        Change(plan, "next_range", "(*begun.cuts, begun.to_snapshot_id)", "()"), schedules=4000),
    Mutant("a batch forgets its cuts", (INDEX,), Change(sync, "_sync_batch", "cuts=list(plan.cuts)", "cuts=[]"),
        schedules=20000),
    Mutant("a delete and an upsert of one batch have the same version", (INDEX,),
        Change(bulk_lines, "delete_version", "2 * epoch", "2 * epoch + 1")),
    Mutant("operations that OpenSearch refused for a moment count as done", (INDEX, READERS),
        Change(bulk, "count_outcomes", "again.append(number)", "upserts += 1", (bulk,))),
    Mutant("a bulk request without an answer counts as done", (INDEX, READERS),
        Change(BulkWriter, "_send", "cause = error\n", "return result\n")),
    Mutant("an export resumes by the number of finished groups alone", (READERS, INDEX),
        Change(export, "_resume", "begun.to_snapshot_id, begun.group_bytes, begun.on_duplicate_identifier)\n"
        "            if digest != begun.groups_digest:",
        "begun.to_snapshot_id, run.config.export_group_bytes, 'fail')\n            if False:"), schedules=20000),
    Mutant("an export resumes with the current snapshot", (READERS, INDEX),
        Change(export, "_resume", "begun.to_snapshot_id, begun.group_bytes, begun.on_duplicate_identifier)\n"
        "            if digest != begun.groups_digest:",
        "source.head, begun.group_bytes, begun.on_duplicate_identifier)\n            if False:"), schedules=10000),
    Mutant("an export resumes in an index that was created again", (RECOVERY, READERS, INDEX),
        Change(export, "_resume", "not indexes.is_intact(run.client, begun.uuids)", "False"),
        Change(export, "_export", "indexes.require_same_index(run.client, config, batch.uuids)", "pass"),
        schedules=2000),
    Mutant("a file group is recorded before it is written", (READERS, INDEX),
        Change(export, "_export", "written = write_batch(",
        "lock.record(groups_done=number)\n                written = write_batch("), schedules=3000),
    Mutant("the alias moves before the last group is written", (READERS, ALIAS, INDEX),
        Change(export, "_export", 'with run.stage("write"), ',
        'indexes.publish_index(run.client, config, batch.physical_index, seen)\n        with run.stage("write"), ')),
    Mutant("the alias moves before searches find the documents", (READERS, INDEX),
        Change(indexes, "publish_index", "client.indices.refresh(index=with_suffixes(config, physical))",
        "pass"), Change(export, "_require_a_document_of_each_row", "run.client.indices.refresh(index=names)", "pass")),
    Mutant("a sync commits before searches find the documents", (INDEX,),
        Change(batch, "prepared_index", "run.client.indices.refresh(index=indexes.with_suffixes(config, physical))",
        "pass", (sync,))),
    Mutant("a re-export forgets the begun batch", (INDEX, LOGGED),
        Change(sync, "_reexport", "report = replace(",
        "lock.write(replace(lock.position, batch=None))\n    report = replace("), schedules=2000),
    Mutant("a kept index forgets its begun batch", (INDEX,),
        Change(batch, "_kept_index", "batch=batch.over", "batch=None"), schedules=4000),
    Mutant("a rollback goes back to an earlier epoch", (GROW,),
        Change(Run, "finish_rollback", "epoch=begun.epoch", "epoch=kept.epoch")),
    Mutant("a repair takes the place of a begun batch", (INDEX, UNIQUE),
        Change(repair, "require_repairable", 'begun is not None and begun.kind != "repair"', "False"),
        schedules=20000),
    Mutant("a repair writes what it compared, although a sync committed since", (INDEX,),
        Change(repair, "require_repairable", "position.content_version != compared.content_version", "False"),
        schedules=20000),
    Mutant("a run without the lock moves the alias", (ALIAS, RECOVERY, INDEX, READERS),
        Change(indexes, "_move_readers", "if expected is not None and seen.keys() - own - {*expected}:\n"
        "        raise _fenced(config, seen)\n" "    for old in seen.keys() - own:\n"
        '        actions.append({"remove": {"index": old, "alias": config.index, "must_exist": True}})\n'
        '        actions.append({"remove": {"index": old, "alias": write_alias(old), "must_exist": ' "False}})",
        "for old in seen.keys() - own:\n"
        '        actions.append({"remove": {"index": old, "alias": config.index, "must_exist": False}})'),
        schedules=20000),
    Mutant("a run without the lock deletes a newer index", (INDEX, ALIAS, READERS, RECOVERY),
        Change(indexes, "drop_leftovers", "if is_leftover:",
        "if name in epochs and name != physical:\n            _delete(client, name)\n        elif is_leftover:"),
        schedules=20000),
    Mutant("the table is opened before the position is read", (FORWARD,),
        Change(Run, "look", "return self._look_with(self.positions.read())",
        "opened = open_indexable_source(self.spark, self.config, needs_history)\n"
        "    position = self.positions.read()\n"
        "    return position or Position(self.config.index, self.config.table, opened.metadata.table_uuid), opened"),
        schedules=4000),
    Mutant("the table is not opened again when another run wrote before the lock", (FORWARD,),
        Change(Run, "lock", "if lock.position != position else", "if False else"), schedules=4000),
    Mutant("an overtaken export blocks all later syncs", (RECOVERY, REFUSALS),
        Change(sync, "checked_look", " or position.begun_export", ""), schedules=20000),
    Mutant("a sync compares the alias with a position that another run has moved", (REFUSALS,),
        Change(sync, "checked_look", "if position == before:", "if True:"), schedules=4000),
    Mutant("a position says that it is current at the end of any batch", (CURRENT,),
        Change(batch, "with_times", " if is_at_head(position, source) else position.current_at", "", (sync,)),
        schedules=4000),
    Mutant("a position is confirmed although another run has moved it", (INDEX, GROW, UNIQUE, LOGGED),
        Change(PositionStore, "confirm", "if found == position and (", "if ("), schedules=20000),
    Mutant("a position is confirmed although another run has the lock", (KEPT,),
        Change(PositionStore, "confirm", "holder is None or is_gone(holder,", "True or is_gone(holder,")),
    Mutant("a position is confirmed without a condition", (INDEX, GROW, UNIQUE, LOGGED, KEPT),
        Change(PositionStore, "confirm", "_only_if(_version_of(document))", "{}"), schedules=4000),
    Mutant("a child table alone is nothing new", (RECOVERY,),
        Change(plan, "is_at_head", " and position.nested_snapshots == heads(source)", "", (sync,))),
    Mutant("a cut is the snapshot of the root alone", (INDEX,),
        Change(plan, "next_range", "begun.nested_snapshots),", "heads(source)),"), schedules=4000),
    Mutant("a begun batch is repeated with the current snapshots of nested tables", (INDEX,),
        Change(plan, "next_range", "begun, nested=begun.nested,", "begun, nested=now,"), schedules=4000),
    Mutant("a document that moves stays in its old place", (INDEX,),
        Change(simulated_jobs, "compute_changes", "after.get(identity) != place", "False", (sync,))),
    Mutant("a document is not deleted in the place that a failed batch gave it", (INDEX,),
        Change(simulated_jobs, "compute_changes", "sorted(deleted)", "sorted(deleted - inserted)", (sync,)),
        schedules=4000),
    Mutant("the position moves for the root alone", (INDEX, RECOVERY),
        Change(batch, "commit_batch", ", batch.nested)", ", position.nested or batch.nested)", (sync, export))),
    Mutant("an export resumes with the current snapshots of nested tables", (INDEX,),
        Change(export, "_export", "at_vector(source, batch.to_snapshot_id, batch.nested_snapshots)", "source"),
        schedules=4000),
]  # fmt: skip
