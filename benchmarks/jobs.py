"""Whole jobs: a small change in a small and in a big table, nothing to do, export and validation."""

from __future__ import annotations

import time
from collections.abc import Callable

from opensearchpy import OpenSearch
from pyspark.sql import SparkSession, functions as F

from benchmarks.sink import SinkBenchmark
from benchmarks.tables import create, rows_of
from icecdc_core import SyncConfig, export_table, sync_changes, validate_table
from icecdc_core.documents.bulk_lines import to_actions
from icecdc_core.opensearch.bulk import BulkWriter, write_actions

# Masks one column and renames another, as the spec of an index does.
SELECT = ["* EXCEPT (name, note)", "sha2(name, 256) AS owner", "named_struct('text', note, 'city', city) AS place"]
COLUMNS = 400
SINK, SINK_ALIAS = "bench-sink--000001", "bench-sink--WRITE"


class SmallChangeBenchmark:
    """One changed row, from its commit until a search finds it, in a table and in one of ten times its files."""

    def __init__(self, spark: SparkSession, config: SyncConfig, rows: int, files: int) -> None:
        self._spark, self._client = spark, OpenSearch(config.opensearch_url, timeout=120)
        self.stages: dict[str, dict[str, float]] = {}
        self._changes = 0
        namespace = config.table.rsplit(".", 1)[0]
        self._jobs = {}
        for times in (1, 10):
            name = f"small_change_{times}"
            job = config.replace(table=f"{namespace}.{name}", index=name.replace("_", "-"), identifier_columns=["id"])
            create(spark, job.table, 2, "copy-on-write")
            rows_of(spark, 0, rows * times).repartitionByRange(files * times, "id").writeTo(job.table).append()
            export_table(spark, job)
            self._jobs[f"one changed row in {files * times} files"] = job
        wide = config.replace(
            table=f"{namespace}.small_change_wide", index="small-change-wide", identifier_columns=["id"]
        )
        more = [f"id + {number} AS more_{number}" for number in range(COLUMNS - 10)]
        wider = rows_of(spark, 0, rows).selectExpr("*", *more).repartitionByRange(files, "id")
        wider.writeTo(wide.table).using("iceberg").tableProperty("format-version", "2").create()
        export_table(spark, wide)
        self._jobs[f"one changed row of {COLUMNS} columns in {files} files"] = wide
        projected = self._jobs[f"one changed row in {files} files"].replace(
            index="small-change-projected", select=SELECT
        )
        export_table(spark, projected)
        self._jobs[f"one changed row in {files} files, documents by select"] = projected

    def contestants(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds."""
        changes: dict[str, Callable[[], float]] = {
            name: lambda name=name, job=job: self._change(name, job)  # type: ignore[misc]
            for name, job in self._jobs.items()
        }
        return {**changes, "nothing to do": lambda: self._nothing([*self._jobs.values()][-1])}

    def _change(self, name: str, job: SyncConfig) -> float:
        self._changes += 1
        self._spark.sql(f"UPDATE {job.table} SET quantity = {1000 + self._changes} WHERE id = 1")
        begin = time.perf_counter()
        report = sync_changes(self._spark, job)
        query = {"query": {"term": {"quantity": 1000 + self._changes}}}
        found = self._client.search(index=job.index, body=query)["hits"]["hits"]
        seconds = time.perf_counter() - begin
        if [hit["_id"] for hit in found] != ["1"] or report.upserts != 1:
            raise SystemExit(f"{report.upserts} documents were written, found {found}")
        self.stages[name] = {stage: round(seconds, 3) for stage, seconds in report.stage_seconds.items()}
        return seconds

    def _nothing(self, job: SyncConfig) -> float:
        begin = time.perf_counter()
        report = sync_changes(self._spark, job)
        seconds = time.perf_counter() - begin
        if report.strategy != "none":
            raise SystemExit(f"expected nothing to do, not {report.strategy}")
        return seconds


class WholeTableBenchmark:
    """Export and validation of a table, against writing the same rows without a job around it, or from ready texts."""

    def __init__(self, spark: SparkSession, config: SyncConfig, documents: int) -> None:
        self._spark, self._documents = spark, documents
        self._client, self._exports = OpenSearch(config.opensearch_url, timeout=120), 0
        self._ready = SinkBenchmark(spark, config, documents).contestants()["prebuilt NDJSON, 2 connections"]
        namespace = config.table.rsplit(".", 1)[0]
        self._job = config.replace(table=f"{namespace}.whole", index="whole", identifier_columns=["id"])
        create(spark, self._job.table, 2, "copy-on-write")
        rows_of(spark, 0, documents).writeTo(self._job.table).append()

    def contestants(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds."""
        projected = self._job.replace(index="whole-projected", select=SELECT)
        return {
            "export": lambda: self._export(self._job),
            "first export": self._first_export,
            "export, documents by select": lambda: self._export(projected),
            "the sink alone": self._sink,
            "ready requests": self._ready,
            "validation": self._validate,
        }

    def _export(self, job: SyncConfig) -> float:
        begin = time.perf_counter()
        report = export_table(self._spark, job)
        seconds = time.perf_counter() - begin
        if report.upserts != self._documents:
            raise SystemExit(f"{report.upserts} documents were exported, expected {self._documents}")
        return seconds

    def _first_export(self) -> float:
        self._exports += 1
        seconds = self._export(self._job.replace(index=f"whole-first-{self._exports}"))
        self._client.indices.delete(index=f"whole-first-{self._exports}--*")
        return seconds

    def _sink(self) -> float:
        self._client.indices.delete(index=SINK, ignore_unavailable=True)
        mapping = next(iter(self._client.indices.get_mapping(index="whole").values()))["mappings"]
        settings = {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"}
        body = {"settings": settings, "mappings": mapping, "aliases": {SINK_ALIAS: {}}}
        self._client.indices.create(index=SINK, body=body)
        rows = self._spark.table(self._job.table).select("*", F.lit("INSERT").alias("_change_type"))
        begin = time.perf_counter()
        with write_actions(to_actions(rows, ["id"], 1), BulkWriter.of(self._job, SINK_ALIAS)) as (result, _):
            seconds = time.perf_counter() - begin
        if result.counts.upserts != self._documents:
            raise SystemExit(f"{result.counts.upserts} documents were written, expected {self._documents}")
        return seconds

    def _validate(self) -> float:
        begin = time.perf_counter()
        report = validate_table(self._spark, self._job)
        seconds = time.perf_counter() - begin
        if not report.ok:
            raise SystemExit(f"the index does not equal the table: {report.to_dict()}")
        return seconds


class NestedBenchmark:
    """Documents of three tables: changes of few and of many nested rows, against building the index anew."""

    def __init__(self, spark: SparkSession, config: SyncConfig, documents: int) -> None:
        self._spark, self._documents, self._changes = spark, documents, 0
        namespace = config.table.rsplit(".", 1)[0]
        self._root, self._city, self._tag = (f"{namespace}.nested_{name}" for name in ("root", "city", "tag"))
        for table in (self._root, self._city, self._tag):
            create(spark, table, 2, "copy-on-write")
        rows_of(spark, 0, documents).writeTo(self._root).append()
        # A city for 30 roots, and three tags for each root: `quantity` holds the root's id.
        rows_of(spark, 0, documents // 30).writeTo(self._city).append()
        tags = rows_of(spark, 0, documents * 3).withColumn("quantity", (F.col("id") % documents).cast("int"))
        tags.repartitionByRange(8, "quantity").sortWithinPartitions("quantity").writeTo(self._tag).append()
        nest = {
            "home": {"table": self._city, "alias": "c", "on": f"c.id = r.id % {documents // 30}", "select": ["name"]},
            "tags": {"table": self._tag, "alias": "t", "on": "t.quantity = r.id", "as": "array", "select": ["name"]},
        }
        self._plain = config.replace(table=self._root, index="plain", alias="r", identifier_columns=["id"])
        self._job = self._plain.replace(index="nested", nest=nest)

    def contestants(self) -> dict[str, Callable[[], float]]:
        """Name to a run that returns its seconds."""
        few, many = self._documents * 3 // 1000, self._documents * 3 // 20
        of_city = len(range(7, self._documents, self._documents // 30))
        return {
            "export": lambda: self._export(self._job),
            "export of the root alone": lambda: self._export(self._plain),
            "one nested row of one document": lambda: self._sync(self._tag, "id = 7", 1),
            "one nested row of 30 documents": lambda: self._sync(self._city, "id = 7", of_city),
            f"0.1 % of the nested rows ({few:,})": lambda: self._sync(self._tag, f"id < {few}", few),
            f"5 % of the nested rows ({many:,})": lambda: self._sync(self._tag, f"id < {many}", many),
        }

    def _export(self, job: SyncConfig) -> float:
        begin = time.perf_counter()
        report = export_table(self._spark, job)
        if report.upserts != self._documents:
            raise SystemExit(f"{report.upserts} documents were exported, expected {self._documents}")
        return time.perf_counter() - begin

    def _sync(self, table: str, condition: str, expected: int) -> float:
        self._changes += 1
        self._spark.sql(f"UPDATE {table} SET name = 'change {self._changes}' WHERE {condition}")
        begin = time.perf_counter()
        report = sync_changes(self._spark, self._job)
        if report.upserts != expected:
            raise SystemExit(f"{report.upserts} documents were written, expected {expected}")
        return time.perf_counter() - begin
