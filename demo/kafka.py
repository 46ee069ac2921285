"""`make demo KAFKA=1`: from a real Kafka into Iceberg tables, and from the tables into a real OpenSearch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from demo.console import add_option, timed_step
from demo.kernel import kernel_in
from demo.results import run_notebook
from demo.workspace import ROOT, display_path, run_in_folder
from icecdc_core.config import SyncConfig
from icecdc_core.ingest import IngestConfig, ingest
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.jobs.validate import validate_table
from icecdc_core.local import running_opensearch
from icecdc_core.local.kafka import running_kafka
from icecdc_core.notebook import open_spark
from icecdc_core.opensearch.client import Connection
from icecdc_core.reporting.progress import print_line

TABLES = ("customers", "orders", "payments")
_TOPICS = {"auto.create.topics.enable": "true", "num.partitions": "3"}


class KafkaDemo:
    """One run of the demo."""

    def __init__(self, servers: str, opensearch_url: str, output: Path) -> None:
        self.output = output
        self.opensearch_url = opensearch_url
        self.config = IngestConfig.load(
            ROOT / "demo" / "ingests.yml", bootstrap_servers=servers, warehouse=str(output / "warehouse")
        )
        self.lsn = 0

    def run(self) -> bool:
        """Run all steps; returns whether every index equals its table and the tables are as they must be."""
        with timed_step("Spark starts"):
            spark = open_spark(self.config)
            spark.sparkContext.setLogLevel("ERROR")
        customers = [self._event("customers", id=n, name=f"Customer {n}") for n in range(1_000)]
        orders = [self._event("orders", id=n, customer=n % 1_000) for n in range(3_000)]
        payments = [self._event("payments", id=n, amount=n % 90 + 1) for n in range(3_000)]
        late = self._event("customers", id=7, name="Customer 7, as it was")
        sessions = [self._event("sessions", id=n) for n in range(10)]
        with timed_step("a topic gets the changes of four tables, one of them unwanted, and a record that is no JSON"):
            self._send(spark, [*customers, *orders, *payments, *sessions, "this is no JSON"])
        with timed_step("notebook 40_kafka_ingest: the topic becomes three tables"):
            given = {name: getattr(self.config, name) for name in sorted(self.config.model_fields_set)}
            notebook = ROOT / "notebooks" / "40_kafka_ingest.ipynb"
            with kernel_in(spark) as kernel:
                _print_counts(run_notebook(notebook, self.output, {k: _plain(v) for k, v in given.items()}, kernel))
        with timed_step("the tables are indexed"):
            self._sync(spark)
        self._step(spark, "customer 7 is deleted", [self._event("customers", "d", id=7)])
        self._step(spark, "customer 7 comes late, customer 8 gets a new column, payment 5 is wrong", [
            late,
            self._event("customers", "u", id=8, name="Ada Lovelace", city="London"),
            self._event("payments", "u", id=5, amount=-6),
        ])  # fmt: skip
        self._step(spark, "payment 5 is corrected", [self._event("payments", "u", id=5, amount=600)])
        with timed_step("the changes are synced"):
            self._sync(spark)
        equal = self._validated(spark) and self._searched()
        spark.stop()
        return equal

    def _event(self, table: str, op: str = "c", **row: Any) -> str:
        """Return the next change of the database, as Debezium writes it."""
        self.lsn += 1
        before, after = (row, None) if op == "d" else (None, row)
        return json.dumps({"op": op, "before": before, "after": after, "source": {"table": table, "lsn": self.lsn}})

    def _send(self, spark: SparkSession, events: list[str]) -> None:
        records = spark.createDataFrame([(event,) for event in events], "value string")
        servers = self.config.bootstrap_servers
        records.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "shop").save()

    def _step(self, spark: SparkSession, description: str, events: list[str]) -> None:
        with timed_step(description):
            self._send(spark, events)
            _print_counts(ingest(spark, self.config).to_dict())

    def _indexes(self) -> list[SyncConfig]:
        return [
            SyncConfig(
                table=f"{self.config.namespace}.{name}",
                index=f"kafka-demo-{name}",
                identifier_columns=["id"],
                opensearch_url=self.opensearch_url,
                warehouse=self.config.warehouse,
                positions_index="icecdc-kafka-demo-positions",
                number_of_replicas=0,
            )
            for name in TABLES
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

    def _searched(self) -> bool:
        """Search what was changed: the deleted row stays deleted, the others have their last values."""
        queries = {"customers": ("id:7", "city:London"), "payments": ("id:5",)}
        found = []
        with closing(Connection.of(self._indexes()[0]).client()) as client:
            for table, texts in queries.items():
                for text in texts:
                    hits = client.search(index=f"kafka-demo-{table}", params={"q": text})["hits"]["hits"]
                    rows = [hit["_source"] for hit in hits]
                    print_line(f"  search {table} for {text}: {rows or 'nothing'}")
                    found.append([(row["id"], row.get("name", row.get("amount"))) for row in rows])
        return found == [[], [(8, "Ada Lovelace")], [(5, 600)]]


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


def _print_counts(report: dict[str, Any]) -> None:
    counts = f"{report['records']:,} records, {report['rows_written']:,} rows, {report['deletes']:,} deletes"
    print_line(f"  {counts}, {report['filtered']} dropped, {report['dead_letters']} dead letters")
    for name in report["behind"]:
        print_line(f"  {name} is behind: {report['tables'][name]['error']}")


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
