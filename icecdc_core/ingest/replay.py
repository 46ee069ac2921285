"""Puts dead letters through the ingest again, each exactly once: claim them, write them with the claim, remove them.

A table takes only the claim of the replay that began last, and names the last claim that it took in a property, set in
the commit of the rows. What is claimed after a crash is removed if its table took that claim, else it is claimed again.
Dead letters that fail again lose their claim before the others are published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from icecdc_core.errors import LONGEST, ConfigError, TableNotFoundError
from icecdc_core.ingest.commit_log import LogEntry
from icecdc_core.ingest.config import quoted_table
from icecdc_core.ingest.dead_letters import DOUBTFUL, GONE, POSITION, DeadLetters
from icecdc_core.ingest.decoding import ROUTE, TABLE, route_records
from icecdc_core.ingest.destinations import open_or_create_table
from icecdc_core.ingest.kafka import typed_failure
from icecdc_core.ingest.offsets import Offsets, is_below
from icecdc_core.ingest.publish import begin_replay
from icecdc_core.ingest.writes import TableRecords
from icecdc_core.session.job_session import new_job_session
from icecdc_core.session.jvm import active_session

if TYPE_CHECKING:
    from icecdc_core.ingest.batch import Batches

_CLAIMED = "replay "


class ClaimedDeadLetters(DeadLetters):
    """The dead letters that a replay works on: one that is rejected again gets its new reason, and loses the claim."""

    @property
    def claim(self) -> str:
        return f"{_CLAIMED}{self.run_id}"

    def write(self, rejected: DataFrame, table: str | None = None) -> int:
        again = rejected.select(*POSITION, F.substring("problem", 1, LONGEST).alias("reason"))
        of_table = (F.col("table") == table) & (F.col("run_id") == self.claim)
        new = {"run_id": F.lit(self.run_id), GONE: F.lit(False)}
        return self.rewrite(
            rejected.sparkSession,
            lambda stored: stored.where(of_table).drop("reason").join(again, list(POSITION)).withColumns(new),
        )

    def judge_again(self, spark: SparkSession, table: str | None, done: Offsets, *rejected: DataFrame | None) -> None:
        """Claim again what this replay rejected, before it judges again."""
        mine, new = (F.col("table") == table) & (F.col("run_id") == self.run_id), F.lit(self.claim)
        self.rewrite(spark, lambda stored: stored.where(mine).withColumns({"run_id": new, GONE: F.lit(False)}))

    def remove(self, spark: SparkSession, tables: list[str]) -> None:
        written = F.col("table").isin(tables) & (F.col("run_id") == self.claim)
        self.rewrite(spark, lambda stored: stored.where(written).withColumn(GONE, F.lit(True)))

    def reasons(self, spark: SparkSession) -> dict[str, int]:
        """Count what failed again by its reason."""
        failed = spark.table(self.config.quoted_dead_letters).where(F.col("run_id") == self.run_id)
        return {row.reason: int(row["count"]) for row in failed.groupBy("reason").count().orderBy("reason").collect()}


def replay_dead_letters(spark: SparkSession, batches: Batches) -> tuple[LogEntry, dict[str, int]]:
    """Replay the job's dead letters; returns what was written, and how many failed again for which reason."""
    config, mine = batches.config, ClaimedDeadLetters(batches.config, batches.run_id)
    batches.writer = replace(batches.writer, dead_letters=mine, replay=mine.claim)
    batch = LogEntry(config.job, batches.number, batches.run_id, "replay", {})
    begun: dict[str, str] = {}
    claimed: DataFrame | None = None

    def claim(stored: DataFrame) -> DataFrame:
        nonlocal claimed
        # What is claimed was judged, also if this run read the log before; the next claim hides whether it was written.
        is_open = _is_judged(batches) | F.col("run_id").startswith(_CLAIMED)
        routed = _route(stored.where(is_open & (F.col("run_id") != DOUBTFUL)), batches)
        failed: dict[str, str] = {}
        begun.clear()
        for [table] in routed.where(f"{TABLE} IS NOT NULL").select(TABLE).distinct().collect():
            try:
                begun[table] = _begin(spark, table, routed.where(F.col(TABLE) == table), batches, mine.claim)
            except Exception as error:
                batches.behind[table] = typed_failure(error, table)
                failed[table] = str(batches.behind[table])[:LONGEST]
        took, why = _of_table(begun), _of_table(failed)
        is_gone = F.coalesce(F.col("run_id") == took, F.lit(False))
        reason = F.coalesce(why, F.when(F.col(TABLE).isNull(), F.col("problem")), "reason")
        # A table that cannot be used now may have taken the claim of another replay.
        rows = routed.where(why.isNull() | ~F.col("run_id").startswith(_CLAIMED))
        owner = F.when(took.isNull(), F.lit(mine.run_id)).otherwise(F.lit(mine.claim))
        rows = rows.withColumns({GONE: is_gone, "reason": reason, "run_id": owner})
        claimed = rows.where(took.isNotNull() & ~F.col(GONE)).drop("job", "table", "reason", "run_id", "kept_at", GONE)
        now_routed = routed.where(f"table IS NULL AND {TABLE} IS NOT NULL").dropDuplicates(list(POSITION))
        moved = rows.drop("table").withColumnRenamed(TABLE, "table")
        return moved.unionByName(now_routed.drop(TABLE).withColumn(GONE, F.lit(True)))

    spark = new_job_session(spark)
    if not spark.catalog.tableExists(config.quoted_dead_letters):
        return batch, {}
    with active_session(spark), batches.settings(spark):
        mine.rewrite(spark, claim)
        assert claimed is not None
        of_tables = {table: claimed.where(F.col(TABLE) == table).drop(TABLE).orderBy(*POSITION) for table in begun}
        tables, _ = batches.write_each({name: TableRecords(each) for name, each in of_tables.items()}, batch)
        mine.remove(spark, [each.name for each in tables if each.name not in batches.behind])
        reasons = mine.reasons(spark)
        written = sum(each.rows + each.deletes for each in tables)
    failed_again = sum(reasons.values())
    return replace(batch, records=written + failed_again, dead_letters=failed_again, tables=tables), reasons


def _is_judged(batches: Batches) -> Column:
    """Whether a record's table has read past it; if not, it is read and judged again."""
    left, everywhere = batches.recovering, is_below(batches.complete)
    found = F.when(F.col("table").isNull(), reduce(and_, map(is_below, left.values()), everywhere))
    for table, reached in left.items():
        found = found.when(F.col("table") == table, is_below(reached))
    return found.otherwise(everywhere)


def _route(stored: DataFrame, batches: Batches) -> DataFrame:
    config = batches.config
    decoded, _ = batches.decode(stored)
    routed = decoded.withColumn(TABLE, F.coalesce("table", F.lit(quoted_table(config.table) or None)))
    if config.route_by != "table":  # a record keeps the table that it had
        found = route_records(decoded.where("table IS NULL"), config, batches.shared.any_case)
        routed = found.unionByName(routed.where("table IS NOT NULL").drop(ROUTE))
    return routed.dropDuplicates([*POSITION, TABLE]).localCheckpoint()


def _begin(spark: SparkSession, name: str, records: DataFrame, batches: Batches, claim: str) -> str:
    config = batches.config.for_table(name)
    if config.mode == "upsert" and not config.ordering_column:
        raise ConfigError(
            "Dead letters are older than what came since, and nothing says so in the table's rows",
            subject="ordering_column",
            value=name,
            remedy="set ordering_column; metadata_columns=timestamp and ordering_column=_kafka_timestamp will do",
        )
    table, _ = open_or_create_table(spark, name, records, config)
    if table is None:
        raise TableNotFoundError(
            "The table does not exist, and no dead letter has a value from which it could get a column",
            subject="table",
            value=name,
            remedy="create the table",
        )
    return begin_replay(table, config.job, claim)


def _of_table(values: Mapping[str, str]) -> Column:
    return F.try_element_at(F.from_json(F.lit(json.dumps(values)), "map<string,string>"), F.col(TABLE))
