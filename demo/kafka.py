"""`make demo KAFKA=1`: from a real Kafka into Iceberg tables, and from the tables into a real OpenSearch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from demo.console import add_option, timed_step
from demo.kernel import kernel_in
from demo.results import run_notebook
from demo.workspace import ROOT, display_path, run_in_folder
from icecdc_core.config import SyncConfig
from icecdc_core.ingest import IngestConfig, IngestReport, ingest
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.jobs.validate import validate_table
from icecdc_core.local import running_opensearch
from icecdc_core.local.kafka import running_kafka
from icecdc_core.notebook import open_spark
from icecdc_core.reporting.progress import print_line

NAMESPACE = "lake.kafka_demo"
ORIGINS = ("EWR", "JFK", "LGA")
_TOPICS = {"auto.create.topics.enable": "true", "num.partitions": "3"}


class KafkaDemo:
    """One run of the demo."""

    def __init__(self, servers: str, opensearch_url: str, output: Path) -> None:
        shared: dict[str, Any] = {"bootstrap_servers": servers, "warehouse": str(output / "warehouse")}
        shared |= {"namespace": NAMESPACE, "auto_create": True}
        self.output = output
        self.opensearch_url = opensearch_url
        # One topic fills a table for each airport; the other fills one table whose rows are updated and deleted.
        self.flights = IngestConfig(
            job="flights", topics="flights", route_by="field", route_field="origin", metadata_columns="offset", **shared
        )
        self.planes = IngestConfig(
            job="planes",
            topics="planes",
            table=f"{NAMESPACE}.planes",
            mode="upsert",
            op_field="op",
            identifier_columns="tailnum",
            **shared,
        )

    def run(self) -> bool:
        """Run all steps; returns whether every index equals its table."""
        with timed_step("Spark starts"):
            spark = open_spark(self.flights)
            spark.sparkContext.setLogLevel("ERROR")
        flights = spark.read.parquet(str(ROOT / "data" / "flights.parquet")).limit(30_000)
        planes = spark.read.parquet(str(ROOT / "data" / "planes.parquet"))
        with timed_step("30,000 flights, all planes and two records that belong to no table are produced"):
            self._produce(flights, "flights")
            self._produce(planes.withColumn("op", F.lit("c")), "planes", "tailnum")
            self._produce(spark.createDataFrame([("nowhere", 1)], "dest string, flight long"), "flights")
            _send(spark.createDataFrame([("k", "this is no JSON")], "key string, value string"), self.planes, "planes")
        with timed_step("notebook 40_kafka_ingest: flights into a table for each airport"):
            given = {name: getattr(self.flights, name) for name in sorted(self.flights.model_fields_set)}
            notebook = ROOT / "notebooks" / "40_kafka_ingest.ipynb"
            with kernel_in(spark) as kernel:
                _print_counts(run_notebook(notebook, self.output, {k: _plain(v) for k, v in given.items()}, kernel))
        self._ingest(spark, self.planes)
        with timed_step("the tables are indexed"):
            self._sync(spark)
        with timed_step("planes are changed and scrapped; a few flights are added"):
            newer = planes.where("year >= 2010").withColumns({"seats": F.col("seats") + 1, "op": F.lit("u")})
            self._produce(newer, "planes", "tailnum")
            self._produce(planes.where("year < 1980").withColumn("op", F.lit("d")), "planes", "tailnum")
            self._produce(flights.limit(500), "flights")
        self._ingest(spark, self.flights)
        self._ingest(spark, self.planes)
        with timed_step("the changes are synced"):
            self._sync(spark)
        equal = self._validated(spark)
        spark.stop()
        return equal

    def _produce(self, rows: DataFrame, topic: str, key: str = "") -> None:
        value = F.to_json(F.struct(*(F.col(name) for name in rows.columns))).alias("value")
        by = F.col(key).cast("string") if key else F.lit(None).cast("string")
        _send(rows.select(by.alias("key"), value), self.flights, topic)

    def _ingest(self, spark: SparkSession, config: IngestConfig) -> None:
        with timed_step(f"ingest of {config.job}"):
            report: IngestReport = ingest(spark, config)
            _print_counts(report.to_dict())

    def _indexes(self) -> list[SyncConfig]:
        tables: dict[str, dict[str, Any]] = {origin: {} for origin in ORIGINS} | {
            "planes": {"identifier_columns": ["tailnum"]}
        }
        return [
            SyncConfig(
                table=f"{NAMESPACE}.{name}",
                index=f"kafka-demo-{name.lower()}",
                opensearch_url=self.opensearch_url,
                warehouse=str(self.output / "warehouse"),
                positions_index="icecdc-kafka-demo-positions",
                number_of_replicas=0,
                **identifiers,
            )
            for name, identifiers in tables.items()
        ]

    def _sync(self, spark: SparkSession) -> None:
        for config in self._indexes():
            report = sync_changes(spark, config)
            print_line(f"  {config.index}: {report.upserts:,} upserts, {report.deletes:,} deletes")

    def _validated(self, spark: SparkSession) -> bool:
        verdicts = []
        for config in self._indexes():
            report = validate_table(spark, config)
            verdicts.append(report.ok)
            rows = f"{report.source_rows:,} rows, {report.index_documents:,} documents"
            print_line(f"  {config.index}: {'equal' if report.ok else 'NOT equal'} ({rows})")
        return all(verdicts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns 0 when every index equals its table."""
    parser = argparse.ArgumentParser(prog="python -m demo.kafka", description=__doc__)
    for name, text in (("opensearch-url", "an OpenSearch"), ("bootstrap-servers", "Kafka brokers that make topics")):
        add_option(parser, name, f"{text} to use instead of the embedded one")
    parser.add_argument("--output", default=str(ROOT / "build" / "demo-kafka"), help="folder for the results")
    given = parser.parse_args(arguments)
    output = Path(given.output).absolute()

    def work() -> bool:
        with ExitStack() as services:
            with timed_step("OpenSearch and Kafka start on loopback"):
                url = given.opensearch_url or services.enter_context(running_opensearch())
                servers = given.bootstrap_servers or services.enter_context(running_kafka(settings=_TOPICS))
            equal = KafkaDemo(servers, url, output).run()
            print_line(f"\nExecuted notebook: {display_path(output)}/40_kafka_ingest.html")
        return equal

    return run_in_folder(work, output)


def _send(records: DataFrame, config: IngestConfig, topic: str) -> None:
    records.write.format("kafka").option("kafka.bootstrap.servers", config.bootstrap_servers).option(
        "topic", topic
    ).save()


def _print_counts(report: dict[str, Any]) -> None:
    counts = f"{report['records']:,} records, {report['rows_written']:,} rows, {report['deletes']:,} deletes"
    print_line(f"  {counts}, {report['dead_letters']} dead letters, {len(report['tables'])} tables")


def _plain(value: Any) -> Any:
    return ",".join(value) if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
