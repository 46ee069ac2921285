"""Stage a write, look, publish it: an append or a merge becomes visible only while nothing has moved since the look.

Spark's writes have no compare-and-swap of their own. So they are staged, as a snapshot that no branch shows (write,
audit, publish), and the main branch is set to it by one commit of the table's metadata, which the catalog refuses when
the table has changed in between. Of two runs that take the same records, one finds the table moved on.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from icecdc_core.errors import ConcurrentIngestError, IcecdcError
from icecdc_core.ingest.tables.table_offsets import ATTEMPT, head_of, is_ancestor
from icecdc_core.secrets import masked
from icecdc_core.session.java_causes import causes
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.catalogs import load_table

WAP_ENABLED = "write.wap.enabled"
WAP_ID = "spark.wap.id"
_MAIN = "main"
_TRIES = 20
_CONFLICTS = frozenset({"ValidationException", "CommitFailedException", "CommitStateUnknownException"})


class MovedError(IcecdcError):
    """The table has another current snapshot than what was staged, or was to be, is made on."""


@dataclass(frozen=True)
class Staged:
    """A snapshot that is in the table's metadata and on no branch."""

    snapshot_id: int
    sequence_number: int
    snapshot_ms: int
    parent_id: int | None
    properties: dict[str, str]
    is_append: bool
    rows: int
    files: int
    bytes: int


def stage(
    spark: SparkSession, name: str, table: Any, properties: dict[str, str], write: Callable[[dict[str, str]], None]
) -> Staged:
    """Let `write` write into the table, staged; returns the staged snapshot.

    Args:
        spark: The session in which `write` writes.
        name: The table, every part quoted.
        table: The same as it was loaded before.
        properties: Go into the summary of the snapshot.
        write: Gets all the properties of the snapshot and writes with them.

    Raises:
        MovedError: Iceberg refuses the snapshot because of what another writer committed since `write` looked.
    """
    attempt = uuid.uuid4().hex
    _enable_staging(table)
    marked = {**properties, ATTEMPT: attempt}
    before = table_state(table)
    try:
        write(marked)
    except (PySparkException, Py4JError) as error:
        raise_if_moved(spark, name, before, error)
        raise
    return _found(load_table(spark, name), name, marked)


def raise_if_moved(
    spark: SparkSession, name: str, before: tuple[str, int | None], error: PySparkException | Py4JError
) -> None:
    """Raise MovedError if a commit failed because of another writer's commit.

    Iceberg raises the same classes for failures that no retry helps. Then the table is as it was before.

    Args:
        spark: The session.
        name: The table, every part quoted.
        before: `table_state` before the commit.
        error: What the commit raised.
    """
    conflict = next((cause for cause in causes(error) if cause.kind in _CONFLICTS), None)
    if conflict is not None and table_state(load_table(spark, name)) != before:
        reason = masked(conflict.text)[:500]
        raise MovedError(f"Another writer committed in between: {reason}", subject="table", value=name) from error


def publish(spark: SparkSession, name: str, table: Any, staged: Staged) -> int:
    """Let the main branch show the staged snapshot; returns its id.

    Args:
        spark: The session.
        name: The table, every part quoted.
        table: The same as it was loaded just before; the catalog refuses the commit if it has changed since.
        staged: What `stage` returned.

    Raises:
        MovedError: The main branch is not where it was when the snapshot was staged.
    """
    for attempt in range(_TRIES):
        if attempt:
            table = load_table(spark, name)
            if is_ancestor(table, staged.snapshot_id, back_to=staged.parent_id):
                return staged.snapshot_id  # an earlier try arrived, though its answer did not
        if head_of(table) != staged.parent_id:
            raise MovedError("The table has moved on", subject="table", value=name)
        operations = table.operations()
        base = operations.current()
        builder = iceberg_class(spark, "TableMetadata").buildFrom(base)
        try:
            operations.commit(base, builder.setBranchSnapshot(staged.snapshot_id, _MAIN).build())
            return staged.snapshot_id
        except Py4JJavaError as error:
            if not _may_be_tried_again(error):
                raise
            time.sleep(min(2.0, 0.05 * 2**attempt))
    raise ConcurrentIngestError(
        f"The table's metadata could not be committed in {_TRIES} tries",
        subject="table",
        value=name,
        remedy="run again when fewer others write to the table",
    )


def restage(spark: SparkSession, name: str, staged: Staged) -> Staged:
    """Stage the data files of a staged append anew, on the table's current snapshot; nothing is written twice."""
    table = load_table(spark, name)
    files = table.snapshot(staged.snapshot_id).addedDataFiles(table.io()).iterator()
    attempt = uuid.uuid4().hex
    append = table.newAppend()
    while files.hasNext():
        append.appendFile(files.next())
    for key, value in {**staged.properties, ATTEMPT: attempt}.items():
        append.set(key, value)
    append.stageOnly().commit()
    return _found(load_table(spark, name), name, {**staged.properties, ATTEMPT: attempt})


def append(frame: DataFrame, name: str, options: dict[str, str], properties: dict[str, str]) -> None:
    """Append a frame; staged where `stage` calls it."""
    writer = frame.writeTo(name)
    for key, value in {**options, **{f"snapshot-property.{key}": value for key, value in properties.items()}}.items():
        writer = writer.option(key, value)
    writer.append()


def _enable_staging(table: Any) -> None:
    """Let the table take staged writes; a writer that sets no `spark.wap.id` is not concerned."""
    if table.properties().get(WAP_ENABLED) != "true":
        table.updateProperties().set(WAP_ENABLED, "true").commit()


def table_state(table: Any) -> tuple[str, int | None]:
    """What changes with every commit: the metadata file, and the current snapshot."""
    return str(table.operations().current().metadataFileLocation()), head_of(table)


def _found(table: Any, name: str, properties: dict[str, str]) -> Staged:
    """The snapshot of an attempt; it is one of the last in the metadata."""
    snapshots = table.operations().current().snapshots()
    for position in range(snapshots.size() - 1, -1, -1):
        snapshot = snapshots.get(position)
        summary = snapshot.summary()
        if summary.get(ATTEMPT) == properties[ATTEMPT]:
            parent = snapshot.parentId()
            return Staged(
                snapshot_id=int(snapshot.snapshotId()),
                sequence_number=int(snapshot.sequenceNumber()),
                snapshot_ms=int(snapshot.timestampMillis()),
                parent_id=None if parent is None else int(parent),
                properties=properties,
                is_append=str(snapshot.operation()) == "append",
                rows=int(summary.get("added-records") or 0),
                files=int(summary.get("added-data-files") or 0),
                bytes=int(summary.get("added-files-size") or 0),
            )
    raise ConcurrentIngestError(
        "A staged write is not in the table's metadata any more",
        subject="table",
        value=name,
        remedy="run again; keep others from expiring snapshots that are minutes old",
    )


def _may_be_tried_again(error: Py4JJavaError) -> bool:
    kind = str(error.java_exception.getClass().getSimpleName())
    return kind in ("CommitFailedException", "CommitStateUnknownException")
