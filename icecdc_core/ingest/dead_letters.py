"""The dead letter table: records that could not be routed, decoded or written, each once, with the reason.

They are written before the offsets of the table or the commit log move past them: a replay after a crash finds them.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F

from icecdc_core.errors import LONGEST, ConcurrentIngestError, IngestWriteError, TableNotFoundError
from icecdc_core.ingest.commit_log import JOB, RUN, current_snapshot_id
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.kafka import known_cause
from icecdc_core.ingest.publish import MovedError, append, publish, stage
from icecdc_core.session.jvm import persisted
from icecdc_core.table.catalogs import create_table_once, load_table, usable_table

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = (
    "job string, topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string, value:binary>>, table string, reason string, run_id string, kept_at timestamp"
)
_KEY = ("topic", "partition", "offset", "table")
_ATTEMPTS = 20
_REMEDY = "check that this user may create, read and write it, or name another; the next run reads the records again"


@dataclass
class DeadLetters:
    """The dead letter table of one run; threads may use it at the same time."""

    config: IngestConfig
    run_id: str
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
        with self.lock, usable_table("The dead letter table", "dead_letter_table", name, IngestWriteError, _REMEDY):
            create_table_once(spark, name, SCHEMA, {"write.metadata.delete-after-commit.enabled": "true"})
            with persisted(rows) as rows:
                for _ in range(_ATTEMPTS):
                    try:
                        return self._write_new(spark, name, rows)
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

    def _write_new(self, spark: SparkSession, name: str, rows: DataFrame) -> int:
        """Append the rows that are new; raises MovedError if the table has changed since they were compared."""
        table = load_table(spark, name)
        head = current_snapshot_id(table)
        [[low, high]] = rows.agg(F.min("offset"), F.max("offset")).collect()
        if low is None:
            return 0
        of_job = (F.col("job") == self.config.job) & F.col("offset").between(low, high)
        stored = spark.table(name).where(of_job).select(*(F.col(each).alias(f"stored_{each}") for each in _KEY))
        same = [F.col(column).eqNullSafe(F.col(f"stored_{column}")) for column in _KEY]
        new = rows.join(stored, reduce(and_, same), "left_anti").coalesce(1)
        # Each retry of a table left behind brings its dead letters again; nothing of them is staged.
        if new.isEmpty():
            return 0
        properties = {JOB: self.config.job, RUN: self.run_id}
        staged = stage(spark, name, table, properties, lambda all_of_them: append(new, name, {}, all_of_them))
        if staged.parent_id != head:
            raise MovedError("Another writer committed in between", subject="table", value=name)
        publish(spark, name, staged)
        return staged.entry.rows


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


def recent_dead_letters(spark: SparkSession, config: IngestConfig, limit: int = 10) -> pd.DataFrame:
    import pandas as pd

    from icecdc_core.reporting.tables import NotebookFrame

    columns = ["kept_at", "topic", "partition", "offset", "table", "reason"]
    recent = pd.DataFrame(columns=columns)
    if spark.catalog.tableExists(config.quoted_dead_letters):
        dead_letters = spark.table(config.quoted_dead_letters).where(F.col("job") == config.job)
        recent = dead_letters.orderBy(F.desc("kept_at"), F.desc("offset")).limit(limit).select(*columns).toPandas()
    return NotebookFrame(recent)
