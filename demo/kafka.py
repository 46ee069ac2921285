"""`make demo-kafka`: records go into a real Kafka, from there into Iceberg tables, and from those into OpenSearch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from demo.__main__ import ROOT, add_option, carried_out, shown, tell, told
from demo.results import run_notebook
from icecdc_core.config import SyncConfig
from icecdc_core.ingest import IngestConfig, IngestReport, ingest
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.jobs.validate import validate_table
from icecdc_core.local import running_opensearch
from icecdc_core.local.kafka import running_kafka
from icecdc_core.notebook import open_spark

NAMESPACE = "lake.kafka_demo"
ORIGINS = ("EWR", "JFK", "LGA")
_TOPICS = {"auto.create.topics.enable": "true", "num.partitions": "3"}


class KafkaDemo:
    """One run of the demo.

    Args:
        servers: Kafka's brokers.
        opensearch_url: The server of the indexes.
        output: Folder for warehouse and executed notebook.
    """

    def __init__(self, servers: str, opensearch_url: str, output: Path) -> None:
        shared: dict[str, Any] = {"bootstrap_servers": servers, "warehouse": str(output / "warehouse")}
        shared |= {"namespace": NAMESPACE, "auto_create": True}
        self.output = output
        self.opensearch_url = opensearch_url
        # One topic into a table for each airport, another one into one table whose rows are updated and deleted.
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
        """Run it all; returns whether every index equals its table."""
        with told("Spark starts"):
            spark = open_spark(self.flights)
            spark.sparkContext.setLogLevel("ERROR")
        flights = spark.read.parquet(str(ROOT / "data" / "flights.parquet")).limit(30_000)
        planes = spark.read.parquet(str(ROOT / "data" / "planes.parquet"))
        with told("30,000 flights, all planes and two records that fit nowhere are produced"):
            self._produce(flights, "flights")
            self._produce(planes.withColumn("op", F.lit("c")), "planes", "tailnum")
            self._produce(spark.createDataFrame([("nowhere", 1)], "dest string, flight long"), "flights")
            _send(spark.createDataFrame([("k", "this is no JSON")], "key string, value string"), self.planes, "planes")
        with told("notebook 40_kafka_ingest: flights into a table for each airport"):
            given = {name: getattr(self.flights, name) for name in sorted(self.flights.model_fields_set)}
            notebook = ROOT / "notebooks" / "40_kafka_ingest.ipynb"
            _tell_report(run_notebook(notebook, self.output, {k: _plain(v) for k, v in given.items()}))
        self._ingest(spark, self.planes)
        with told("the tables are indexed"):
            self._sync(spark)
        with told("planes are changed and scrapped; a few flights are added"):
            newer = planes.where("year >= 2010").withColumns({"seats": F.col("seats") + 1, "op": F.lit("u")})
            self._produce(newer, "planes", "tailnum")
            self._produce(planes.where("year < 1980").withColumn("op", F.lit("d")), "planes", "tailnum")
            self._produce(flights.limit(500), "flights")
        self._ingest(spark, self.flights)
        self._ingest(spark, self.planes)
        with told("the changes are synced"):
            self._sync(spark)
        equal = self._validated(spark)
        spark.stop()
        return equal

    def _produce(self, rows: DataFrame, topic: str, key: str = "") -> None:
        value = F.to_json(F.struct(*(F.col(name) for name in rows.columns))).alias("value")
        by = F.col(key).cast("string") if key else F.lit(None).cast("string")
        _send(rows.select(by.alias("key"), value), self.flights, topic)

    def _ingest(self, spark: SparkSession, config: IngestConfig) -> None:
        with told(f"ingest of {config.job}"):
            report: IngestReport = ingest(spark, config)
            _tell_report(report.to_dict())

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
            tell(f"  {config.index}: {report.upserts:,} upserts, {report.deletes:,} deletes")

    def _validated(self, spark: SparkSession) -> bool:
        verdicts = []
        for config in self._indexes():
            report = validate_table(spark, config)
            verdicts.append(report.ok)
            rows = f"{report.source_rows:,} rows, {report.index_documents:,} documents"
            tell(f"  {config.index}: {'equal' if report.ok else 'NOT equal'} ({rows})")
        return all(verdicts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when everything is equal."""
    parser = argparse.ArgumentParser(prog="python -m icecdc_core.demo_kafka", description=__doc__)
    for name, text in (("opensearch-url", "an OpenSearch"), ("bootstrap-servers", "Kafka brokers that make topics")):
        add_option(parser, name, f"{text} to use instead of the embedded one")
    parser.add_argument("--output", default=str(ROOT / "build" / "demo-kafka"), help="folder for the results")
    given = parser.parse_args(arguments)
    output = Path(given.output).absolute()

    def work() -> bool:
        with ExitStack() as services:
            with told("OpenSearch and Kafka start on loopback"):
                url = given.opensearch_url or services.enter_context(running_opensearch())
                servers = given.bootstrap_servers or services.enter_context(running_kafka(settings=_TOPICS))
            equal = KafkaDemo(servers, url, output).run()
            tell(f"\nExecuted notebook: {shown(output)}/40_kafka_ingest.html")
        return equal

    return carried_out(work, output)


def _send(records: DataFrame, config: IngestConfig, topic: str) -> None:
    records.write.format("kafka").option("kafka.bootstrap.servers", config.bootstrap_servers).option(
        "topic", topic
    ).save()


def _tell_report(report: dict[str, Any]) -> None:
    counts = f"{report['records']:,} records, {report['rows_written']:,} rows, {report['deletes']:,} deletes"
    tell(f"  {counts}, {report['dead_letters']} dead letters, {len(report['tables'])} tables")


def _plain(value: Any) -> Any:
    return ",".join(value) if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
