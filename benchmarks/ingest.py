"""Kafka into Iceberg: icecdc's ingest into one table and into many, against Spark's plain stream into one table."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession, functions as F

from icecdc_core.ingest import IngestConfig, ingest

TABLES = 20
PARTITIONS = 4
_SCHEMA = (
    "id BIGINT, kind STRING, customer BIGINT, amount DOUBLE, quantity BIGINT, city STRING, note STRING, flag BOOLEAN, "
    "code STRING, at STRING"
)


class IngestBenchmark:
    """One topic of records of ten fields; each contestant reads all of it into tables of its own."""

    def __init__(self, spark: SparkSession, servers: str, warehouse: str, records: int, topic: str = "") -> None:
        self.spark, self.servers, self.warehouse, self.records = spark, servers, warehouse, records
        self.topic = topic or f"bench-{uuid.uuid4().hex[:8]}"
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        number = F.col("id")
        fields = {
            "id": number,
            "kind": F.concat(F.lit("k"), (number % TABLES).cast("string")),
            "customer": F.pmod(F.xxhash64("id"), F.lit(100_000)),
            "amount": F.rand(7) * 1000,
            "quantity": number % 17,
            "city": F.concat(F.lit("city "), (F.pmod(F.xxhash64("id"), F.lit(500))).cast("string")),
            "note": F.sha1(number.cast("string")),
            "flag": number % 3 == 0,
            "code": F.hex(F.xxhash64("id")),
            "at": F.lit("2026-11-21T12:00:00Z"),
        }
        rows = spark.range(0, records, 1, PARTITIONS)
        value = F.to_json(F.struct(*(column.alias(name) for name, column in fields.items()))).alias("value")
        sink = rows.select(number.cast("string").alias("key"), value).write.format("kafka")
        sink.option("kafka.bootstrap.servers", servers).option("topic", self.topic).save()

    def contestants(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds; the plain stream first."""
        return {
            "Spark's writeStream.toTable, one table": self.plain,
            "icecdc ingest, one table": self.one_table,
            f"icecdc ingest, {TABLES} tables": self.many_tables,
        }

    def plain(self) -> float:
        """Spark's own stream, which has no offsets in the table, no dead letters and no deduplication."""
        name = self._table()
        checkpoint = Path(tempfile.mkdtemp(prefix="icecdc-bench-"))
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic, "startingOffsets": "earliest"}
        begin = time.monotonic()
        source = self.spark.readStream.format("kafka").options(**options).load()
        rows = source.select(F.from_json(F.col("value").cast("string"), _SCHEMA).alias("row")).select("row.*")
        writer = rows.writeStream.format("iceberg").option("checkpointLocation", checkpoint.as_uri())
        writer.trigger(availableNow=True).toTable(name).awaitTermination()
        seconds = time.monotonic() - begin
        shutil.rmtree(checkpoint, ignore_errors=True)
        self._check([name])
        return seconds

    def one_table(self) -> float:
        """The same into one table, by an ingest."""
        name = self._table()
        return self._ingested([name], table=name)

    def many_tables(self) -> float:
        """The same records into twenty tables."""
        namespace = f"lake.bench_{uuid.uuid4().hex[:8]}"
        self.spark.sql(f"CREATE NAMESPACE {namespace}")
        names = [self._table(f"{namespace}.k{number}") for number in range(TABLES)]
        return self._ingested(names, namespace=namespace, route_by="field", route_field="kind")

    def _ingested(self, names: list[str], **parameters: str) -> float:
        config = IngestConfig(
            job=f"bench-{uuid.uuid4().hex[:8]}",
            bootstrap_servers=self.servers,
            topics=self.topic,
            warehouse=self.warehouse,
            max_records_per_batch=0,
            # One for all runs; otherwise each new namespace would get its own.
            commit_log_table="lake.bench.ingest_log",
            **parameters,
        )
        begin = time.monotonic()
        ingest(self.spark, config)
        seconds = time.monotonic() - begin
        self._check(names)
        return seconds

    def _table(self, name: str = "") -> str:
        name = name or f"lake.bench.t{uuid.uuid4().hex[:8]}"
        self.spark.sql(f"CREATE TABLE {name} ({_SCHEMA}) USING iceberg")
        return name

    def _check(self, names: list[str]) -> None:
        found = sum(self.spark.table(name).agg(F.count_distinct("id")).first()[0] for name in names)
        assert found == self.records, f"{found} of {self.records} records"
        for name in names:
            self.spark.sql(f"DROP TABLE {name} PURGE")


class ManyTablesBenchmark:
    """What a table more in a batch costs: five records for each of many tables, and for each of two."""

    def __init__(self, spark: SparkSession, servers: str, warehouse: str, tables: int = 40) -> None:
        self.spark, self.servers, self.warehouse, self.tables = spark, servers, warehouse, tables

    def contestants(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns the seconds of a table more."""
        kinds: dict[str, dict[str, Any]] = {
            "append, tables of the same columns": {},
            "append, each table with columns of its own": {"own_columns": True},
            "append, with schema evolution": {"evolve_schema": True},
            "upsert": {"mode": "upsert", "identifier_columns": "id"},
        }
        return {name: partial(self._table_more, **parameters) for name, parameters in kinds.items()}

    def _table_more(self, own_columns: bool = False, **parameters: Any) -> float:
        many, two = (self._ingested(tables, own_columns, parameters) for tables in (self.tables, 2))
        return (many - two) / (self.tables - 2)

    def _ingested(self, tables: int, own_columns: bool, parameters: dict[str, Any]) -> float:
        """The seconds of the second batch, which upserts the rows of the first."""
        name = f"many_{uuid.uuid4().hex[:8]}"
        self.spark.sql(f"CREATE NAMESPACE lake.{name}")
        names = [f"lake.{name}.k{number}" for number in range(tables)]
        columns = [f"c{number}" if own_columns else "c" for number in range(tables)]
        rest = ", ".join(f"{{0}}{number} BIGINT" for number in range(8))
        for table, column in zip(names, columns, strict=True):
            self.spark.sql(f"CREATE TABLE {table} (id BIGINT, kind STRING, {rest.format(column)}) USING iceberg")
        config = IngestConfig(
            job=name,
            bootstrap_servers=self.servers,
            topics=name,
            warehouse=self.warehouse,
            namespace=f"lake.{name}",
            route_by="field",
            route_field="kind",
            **parameters,
        )
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        seconds = 0.0
        for _ in range(2):
            records = [
                (json.dumps({"id": number, "kind": f"k{table}", **{f"{column}{place}": place for place in range(8)}}),)
                for table, column in enumerate(columns)
                for number in range(5)
            ]
            sink = self.spark.createDataFrame(records, "value string").coalesce(1).write.format("kafka")
            sink.option("kafka.bootstrap.servers", self.servers).option("topic", name).save()
            report = ingest(self.spark, config)
            assert report.rows_written == len(records), report
            seconds = report.stage_seconds["batches"]
        for table in names:
            self.spark.sql(f"DROP TABLE {table} PURGE")
        return seconds
