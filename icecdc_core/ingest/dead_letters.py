"""The dead letter table: records that could not be routed, decoded or written, each once, with the reason.

They are written before the offsets of the table or the commit log move past them: a replay after a crash finds them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F

from icecdc_core.columns import quoted
from icecdc_core.errors import LONGEST, ConcurrentIngestError, IngestWriteError, TableNotFoundError
from icecdc_core.ingest import offsets
from icecdc_core.ingest.commit_log import JOB, OFFSETS, RUN, TableEntry, current_snapshot_id, last_entry
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.kafka import known_cause
from icecdc_core.ingest.offsets import Offsets, is_below
from icecdc_core.ingest.publish import MovedError, append, publish, stage
from icecdc_core.session.jvm import java_helper, persisted
from icecdc_core.table.catalogs import create_table_once, load_table, usable_table

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = (
    "job string, topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string, value:binary>>, table string, reason string, run_id string, kept_at timestamp"
)
POSITION, GONE = ("topic", "partition", "offset"), "_icecdc_gone"
DOUBTFUL = "doubtful"
"""The run_id of dead letters whose record a run may have written after another one, which died, rejected it."""
_KEY = (*POSITION, "table")
_COLUMNS = ("job", *_KEY, "timestamp", "key", "value", "headers", "reason", "run_id", "kept_at")
_ATTEMPTS = 20
Change = tuple[dict[str, str], Callable[[dict[str, str]], None]]
"""Further properties of a snapshot, and what writes its rows."""
_REMEDY = "check that this user may create, read and write it, or name another; the next run reads the records again"


@dataclass
class DeadLetters:
    """The dead letter table of one run; threads may use it at the same time."""

    config: IngestConfig
    run_id: str
    judged: Offsets = field(default_factory=dict)  # up to which records may be dead letters that are judged again
    end: Offsets = field(default_factory=dict)  # of the batch
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, rejected: DataFrame, table: str | None = None) -> int:
        spark, name = rejected.sparkSession, self.config.quoted_dead_letters
        rows = rejected.select(
            F.lit(self.config.job).alias("job"),
            *("topic", "partition", "offset", "timestamp", "key", "value", "headers"),
            F.lit(table).cast("string").alias("table"),
            F.substring("problem", 1, LONGEST).alias("reason"),
            F.lit(self.run_id).alias("run_id"),
            F.current_timestamp().alias("kept_at"),
        )
        with persisted(rows) as rows:
            return self._commit(spark, lambda table: self._append_new(spark, table, name, rows))

    def rewrite(self, spark: SparkSession, change: Callable[[DataFrame], DataFrame]) -> int:
        """Change the job's dead letters in one commit to rows that a function makes of them; those that are gone go."""

        def merge(table: Any) -> Change | None:
            rows = change(spark.table(name).where(F.col("job") == self.config.job))
            new = {column: F.col(f"_new_{column}") for column in _COLUMNS}
            columns = (F.col(column).alias(f"_new_{column}") for column in (*_COLUMNS, GONE))
            source, is_gone = rows.select(*columns).localCheckpoint(), F.col(f"_new_{GONE}")
            if source.isEmpty():
                return None
            same = [F.col(column).eqNullSafe(new[column]) for column in ("job", *_KEY)]
            merged: Any = (
                source.mergeInto(name, reduce(and_, same))
                .whenMatched(is_gone)
                .delete()
                .whenMatched()
                .update({column: new[column] for column in ("reason", "run_id")})
                .whenNotMatched(~is_gone)
                .insert({quoted(column): value for column, value in new.items()})
            )
            return {}, partial(java_helper(spark).merge, merged._jwriter)

        name = self.config.quoted_dead_letters
        return self._commit(spark, merge)

    def judge_again(self, spark: SparkSession, table: str | None, done: Offsets, *rejected: DataFrame | None) -> None:
        """Mark the dead letters of a table, or of none, that fit now: another copy may publish without them."""
        # To remove one would lose it if a copy that rejected it publishes its batch.
        waiting = F.col("table").eqNullSafe(F.lit(table)) & ~is_below(done)
        again = [each.select(*POSITION) for each in rejected if each is not None]
        mark = {"run_id": F.lit(DOUBTFUL), GONE: F.lit(False)}

        def change(stored: DataFrame) -> DataFrame:
            fitting = reduce(
                lambda left, each: left.join(each, list(POSITION), "left_anti"), again, stored.where(waiting)
            )
            return fitting.withColumns(mark)

        self.rewrite(spark, change)

    def _commit(self, spark: SparkSession, prepare: Callable[[Any], Change | None]) -> int:
        """Commit what a function makes of the table as it is, again if others commit in between; returns its rows."""
        name = self.config.quoted_dead_letters
        with self.lock, usable_table("The dead letter table", "dead_letter_table", name, IngestWriteError, _REMEDY):
            create_table_once(spark, name, SCHEMA, {"write.metadata.delete-after-commit.enabled": "true"})
            for _ in range(_ATTEMPTS):
                try:
                    table = load_table(spark, name)
                    head = current_snapshot_id(table)
                    if (change := prepare(table)) is None:
                        return 0
                    more, write = change
                    staged = stage(spark, name, table, {JOB: self.config.job, RUN: self.run_id, **more}, write)
                    if staged.parent_id == head:
                        publish(spark, name, staged)
                        return staged.entry.rows
                except MovedError:
                    continue
                except (PySparkException, Py4JError) as error:
                    # The rejected records are read while they are written, so not every failure is the table's.
                    if (known := known_cause(error)) is None:
                        raise
                    raise known from error
        raise ConcurrentIngestError(
            f"Other writers committed dead letters first, {_ATTEMPTS} times",
            subject="dead_letter_table",
            value=name,
            remedy="give each job its own dead letter table, or run again",
        )

    def _append_new(self, spark: SparkSession, table: Any, name: str, rows: DataFrame) -> Change | None:
        """Append the rows that are not there yet."""
        [[low, high]] = rows.agg(F.min("offset"), F.max("offset")).collect()
        if low is None:
            return None
        of_job = (F.col("job") == self.config.job) & F.col("offset").between(low, high)
        stored = spark.table(name).where(of_job).select(*(F.col(each).alias(f"stored_{each}") for each in _KEY))
        same = [F.col(column).eqNullSafe(F.col(f"stored_{column}")) for column in _KEY]
        new = rows.join(stored, reduce(and_, same), "left_anti").coalesce(1)
        # Each retry of a table left behind brings its dead letters again; nothing of them is staged.
        if new.isEmpty():
            return None
        last = last_entry(table, self.config.job) or TableEntry(name)
        reached = offsets.to_json(offsets.furthest(last.offsets, self.end))
        return {OFFSETS: reached}, partial(append, new, name, {})


# Parts of a reason that come from records: what is quoted, the name of a table, the identifier of a schema, bytes.
_VALUES = (
    r"(?s)'.*'|(?<=^no table: [^:]{1,300} has ).*|(?<=^no table: no expression matches [^:]{1,300}: ).*"
    r"|(?<=schema )\d+|(?<=0x)[0-9A-F]+"
)


def count_by_reason(spark: SparkSession, config: IngestConfig, most: int = 100) -> list[dict[str, Any]]:
    """Count the dead letters of each table and reason without its values; the most frequent ones."""
    with suppress(TableNotFoundError):
        load_table(spark, config.quoted_dead_letters)
        letters = spark.table(config.quoted_dead_letters).where(F.col("job") == config.job)
        reason = F.regexp_replace("reason", _VALUES, "...").alias("reason")
        counts = letters.groupBy(F.coalesce("table", F.lit("")).alias("table"), reason).count()
        return [row.asDict() for row in counts.orderBy(F.desc("count"), "table", "reason").limit(most).collect()]
    return []


def judged_before(spark: SparkSession, config: IngestConfig) -> Offsets:
    """Return the end of the last batch that had dead letters: after a crash, the log may not have reached it."""
    with suppress(TableNotFoundError):
        last = last_entry(load_table(spark, config.quoted_dead_letters), config.job)
        return last.offsets if last else {}
    return {}


def recent_dead_letters(spark: SparkSession, config: IngestConfig, limit: int = 10) -> pd.DataFrame:
    import pandas as pd

    from icecdc_core.reporting.tables import NotebookFrame

    columns = ["kept_at", "topic", "partition", "offset", "table", "reason"]
    recent = pd.DataFrame(columns=columns)
    if spark.catalog.tableExists(config.quoted_dead_letters):
        dead_letters = spark.table(config.quoted_dead_letters).where(F.col("job") == config.job)
        recent = dead_letters.orderBy(F.desc("kept_at"), F.desc("offset")).limit(limit).select(*columns).toPandas()
    return NotebookFrame(recent)
