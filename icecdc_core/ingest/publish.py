"""Commits of tables: a write is staged as a snapshot on no branch, then published by compare-and-swap."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from icecdc_core.errors import ConcurrentIngestError, IcecdcError
from icecdc_core.ingest import commit_log, offsets
from icecdc_core.ingest.branches import branch_of, on_branch
from icecdc_core.ingest.commit_log import (
    ATTEMPT,
    JOB,
    REPLAYED,
    TableEntry,
    current_snapshot_id,
    is_ancestor,
    owner,
    snapshot_entry,
)
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.jvm import COMMIT_CONFLICTS, RETRIED_COMMITS, causes, iceberg_class, is_raised_as
from icecdc_core.table.catalogs import load_table

WAP_ENABLED = "write.wap.enabled"
WAP_ID = "spark.wap.id"
# Iceberg's name for the snapshot from which a snapshot has its files.
_SOURCE = "source-snapshot-id"
_REPLAYING = "icecdc.ingest.replaying"
_ATTEMPTS = 20


class MovedError(IcecdcError):
    """Another writer changed the table between a write's look at it and its commit."""


@dataclass(frozen=True)
class StagedSnapshot:
    entry: TableEntry
    parent_id: int | None
    properties: dict[str, str]
    table: Any


def stage(
    spark: SparkSession, name: str, table: Any, properties: dict[str, str], write: Callable[[dict[str, str]], None]
) -> StagedSnapshot:
    properties = {**properties, ATTEMPT: uuid.uuid4().hex}
    if table.properties().get(WAP_ENABLED) != "true":  # writers that set no `spark.wap.id` write as before
        table.updateProperties().set(WAP_ENABLED, "true").commit()
    before = table_version(table)
    try:
        write(properties)
    except (PySparkException, Py4JError) as error:
        raise_if_moved(spark, name, before, error)
        raise
    return _find_staged(table, name, properties)


def restage(spark: SparkSession, name: str, staged: StagedSnapshot) -> StagedSnapshot | None:
    """Stage the data files of a staged append again, on the table's current snapshot; None if it has expired."""
    table = on_branch(load_table(spark, name), branch_of(staged.table))
    snapshot = table.snapshot(staged.entry.snapshot_id)
    if snapshot is None:
        return None
    files = snapshot.addedDataFiles(table.io()).iterator()
    # Without the source, engines with an older Iceberg delete the files when they expire the first staged snapshot.
    # All snapshots that share the files name the first of them, so that its expiry and theirs keep the files.
    properties = {_SOURCE: str(staged.entry.snapshot_id), **staged.properties, ATTEMPT: uuid.uuid4().hex}
    append = table.newAppend().toBranch(branch_of(table))
    while files.hasNext():
        append.appendFile(files.next())
    for key, value in properties.items():
        append.set(key, value)
    append.stageOnly().commit()
    return _find_staged(table, name, properties)


def publish(spark: SparkSession, name: str, staged: StagedSnapshot) -> None:
    table, staged_id, branch = staged.table, staged.entry.snapshot_id, branch_of(staged.table)
    retrying = Retrying(
        retry=retry_if_exception(lambda error: is_raised_as(error, RETRIED_COMMITS)),
        wait=wait_exponential(multiplier=0.05, max=2.0),
        stop=stop_after_attempt(_ATTEMPTS),
        retry_error_callback=lambda _: None,
    )
    for attempt in retrying:
        with attempt:
            if attempt.retry_state.attempt_number > 1:
                table = on_branch(load_table(spark, name), branch)
                if is_ancestor(table, staged_id, back_to=staged.parent_id):
                    return  # an earlier attempt succeeded, though its answer was lost
            if current_snapshot_id(table) != staged.parent_id:
                raise MovedError("Another writer committed in between", subject="table", value=name)
            operations = table.operations()
            base, job = operations.current(), owner(table, staged.properties.get(JOB, ""))
            claim = staged.properties.get(REPLAYED)
            if claim and base.properties().get(f"{_REPLAYING}.{job}") != claim:
                raise ConcurrentIngestError(
                    "Another replay of the job's dead letters began",
                    subject="replay_dead_letters",
                    value=name,
                    remedy="run one at a time; the next one goes on where this one stopped",
                )
            changed = iceberg_class(spark, "TableMetadata").buildFrom(base).setBranchSnapshot(staged_id, branch)
            if staged.entry.offsets:
                last = json.dumps(staged.entry.values())
                changed.setProperties({commit_log.LAST + job: last})
            if claim:
                changed.setProperties({f"{REPLAYED}.{job}": claim})
            operations.commit(base, changed.build())
            return
    raise MovedError(f"The metadata could not be committed in {_ATTEMPTS} attempts", subject="table", value=name)


def begin_replay(table: Any, job: str, claim: str) -> str:
    """Let a table take only this claim from now on; returns the last claim that it took."""
    job = owner(table, job)
    table.updateProperties().set(f"{_REPLAYING}.{job}", claim).commit()
    # An empty snapshot, as a REST catalog compares no properties: what other replays have staged has another parent.
    table.newAppend().toBranch(branch_of(table)).set(REPLAYED, "").commit()
    table.refresh()
    return table.properties().get(f"{REPLAYED}.{job}") or ""


def append(
    frame: DataFrame, name: str, options: dict[str, str], properties: dict[str, str], empties: bool = False
) -> None:
    """Append a frame to a table, or replace all rows by it; the write is staged if `stage` calls it."""
    named = {f"snapshot-property.{key}": value for key, value in properties.items()}
    writer = frame.writeTo(name).options(**options, **named)
    writer.overwrite(F.lit(True)) if empties else writer.append()


def table_version(table: Any) -> tuple[str, int | None]:
    """Return what changes with every commit: the metadata file and the current snapshot."""
    metadata = table.operations().current()
    return str(metadata.metadataFileLocation()), current_snapshot_id(metadata)


def raise_if_moved(
    spark: SparkSession, name: str, before: tuple[str, int | None], error: PySparkException | Py4JError
) -> None:
    """Raise MovedError if a commit failed, and the table is not as it was: the same class may say other things."""
    conflict = next((cause for cause in causes(error) if cause.kind in COMMIT_CONFLICTS), None)
    if conflict is not None and table_version(load_table(spark, name)) != before:
        reason = mask_secrets(conflict.text)[:500]
        raise MovedError(f"Another writer committed in between: {reason}", subject="table", value=name) from error


def _find_staged(table: Any, name: str, properties: dict[str, str]) -> StagedSnapshot:
    table.refresh()
    snapshots = table.operations().current().snapshots()
    newest_first = map(snapshots.get, reversed(range(snapshots.size())))
    staged = next((each for each in newest_first if each.summary().get(ATTEMPT) == properties[ATTEMPT]), None)
    if staged is None:
        raise MovedError("The staged snapshot has expired", subject="table", value=name)
    counts = {"rows": "added-records", "files": "added-data-files", "bytes": "added-files-size"}
    counted = {count: int(staged.summary().get(key) or 0) for count, key in counts.items()}
    recorded = offsets.from_json(properties.get(commit_log.OFFSETS))
    entry = snapshot_entry(name, table, staged, **counted, offsets=recorded)
    return StagedSnapshot(entry, staged.parentId(), properties, table)
