"""`make demo`: export real tables to a real OpenSearch, run a day of operations, sync, and validate every index."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.console import add_option, timed_step
from demo.day import DAY, FLIGHTS, TABLES, create_tables
from demo.kernel import kernel_in
from demo.results import TableResult, run_notebook, summary
from demo.searches import AFTER_THE_DAY, OF_AIRPORTS, OF_FLIGHTS, Search, answers, commands_to_try
from demo.workspace import ROOT, display_path, remove_indexes, run_in_folder
from icecdc_core.config import SyncConfig
from icecdc_core.jobs.export import export_table
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.jobs.validate import validate_table
from icecdc_core.local import running_opensearch, start_opensearch
from icecdc_core.notebook import open_spark
from icecdc_core.opensearch.client import Connection
from icecdc_core.reporting.progress import print_line
from icecdc_core.reporting.reports import RunReport, ValidationReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INDEX_FILE = ROOT / "demo" / "indexes.yml"
EXPLORE = "50_explore"


class Demo:
    """One run of the demo, in one Spark."""

    def __init__(self, spark: SparkSession, overrides: dict[str, Any], output: Path) -> None:
        self.spark = spark
        self.overrides = overrides
        self.configs = SyncConfig.load_all(INDEX_FILE, **overrides)
        self.output = output
        self.results = {table.name: TableResult(table.name) for table in TABLES}

    def run(self, kernel: Any) -> bool:
        """Run all steps; returns whether every index equals its table."""
        flights = self.results[FLIGHTS.name]
        self._others("export", export_table)
        self._search(OF_AIRPORTS)
        self._notebook(kernel, "00_setup", "is everything there?")
        flights.export = self._notebook(
            kernel, "10_initial_export", "every flight with its airline, plane and airports"
        )
        self._search(OF_FLIGHTS)
        print_line("A day of operations on the tables:")
        for what, statement in DAY:
            with timed_step(f"  - {what}"):
                self.spark.sql(statement)
        flights.sync = self._notebook(kernel, "20_incremental_cdc", "only what changed is written")
        self._others("sync", sync_changes)
        self._search(AFTER_THE_DAY)
        flights.validation = self._notebook(kernel, "30_validation", "every flight is compared with its document")
        self._others("validation", validate_table)
        exported = str(flights.export["to_snapshot_id"])
        query = "dest:SFO AND arr_delay:>600"
        self._notebook(kernel, EXPLORE, "what changed, row by row", from_snapshot=exported, query=query)
        return all(result.validation["ok"] for result in self.results.values())

    def _others(self, stage: str, job: Callable[[SparkSession, SyncConfig], RunReport | ValidationReport]) -> None:
        """Run one stage for all tables but the flights."""
        for table in TABLES:
            if table is not FLIGHTS:
                with timed_step(f"{stage} of {table.name}"):
                    report = job(self.spark, self.configs[f"demo-{table.name}"])
                    setattr(self.results[table.name], stage, report.to_dict())

    def _notebook(self, kernel: Any, name: str, shows: str, **own: str) -> dict[str, Any]:
        """Execute a notebook for the flights and return its report."""
        parameters = {**self.overrides, **own, "index_file": str(INDEX_FILE), "index": f"demo-{FLIGHTS.name}"}
        with timed_step(f"notebook {name}: {shows}"):
            report = run_notebook(ROOT / "notebooks" / f"{name}.ipynb", self.output, parameters, kernel)
        if "upserts" in report:
            print_line(f"  {report['upserts']:,} documents written, {report['deletes']:,} deleted")
        return report

    def _search(self, searches: Sequence[Search]) -> None:
        with closing(Connection.of(self.configs["demo-flights"]).client()) as client:
            print_line("\n".join(["", *answers(client, searches), ""]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns 0 when every index equals its table."""
    options = _parser().parse_args(arguments)
    output = Path(options.output).absolute()
    kept: dict[str, Any] = {}

    def work() -> bool:
        given = options.opensearch_url
        print_line("The first searches come within a minute or two, when OpenSearch, Spark and some tables are there.")
        with ExitStack() as opened, ThreadPoolExecutor(1) as beside:
            server = beside.submit(lambda: opened.enter_context(_server(given, options.keep)))
            with timed_step("one Spark starts, for tables, jobs and notebooks"):
                spark = open_spark(SyncConfig.load(INDEX_FILE, "demo-flights", **_overrides(options, given, output)))
                spark.sparkContext.setLogLevel("ERROR")
                opened.callback(spark.stop)
            with timed_step(f"{len(TABLES)} Iceberg tables are created from {display_path(ROOT / 'data')}"):
                kernel = opened.enter_context(kernel_in(spark))
                create_tables(spark, ROOT / "data")
            with timed_step("OpenSearch: " + (given or "an embedded one started on loopback meanwhile")):
                kept.update(_overrides(options, server.result(), output))
                demo = Demo(spark, kept, output)
                remove_indexes(demo.configs)
            equal = demo.run(kernel)
            print_line(f"\n{summary(demo.results.values())}\n")
        return equal

    code = run_in_folder(work, output)
    if options.keep and kept:
        print_line("\n".join(["\nTry it:", *commands_to_try(kept, INDEX_FILE), ""]))
        if not options.opensearch_url:
            print_line(f"OpenSearch runs on at {kept['opensearch_url']}. `.venv/bin/icecdc services down` stops it.")
    page = output / f"{EXPLORE}.html"
    if page.exists():
        print_line(f"\nThe executed notebooks are beside it. What changed, row by row:\n{display_path(page)}")
    return code


def _server(given: str, keep: bool) -> AbstractContextManager[str]:
    """The URL of the given server, of one that runs on, or of one that ends with the block."""
    if given:
        return nullcontext(given)
    return nullcontext(start_opensearch().url) if keep else running_opensearch()


def _overrides(options: argparse.Namespace, url: str, output: Path) -> dict[str, Any]:
    return {
        "opensearch_url": url,
        "opensearch_username": options.opensearch_username,
        "opensearch_password": options.opensearch_password,
        "catalog_properties": options.catalog_properties,
        "warehouse": "" if options.catalog_properties else str(output / "warehouse"),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    for name, text in (
        ("opensearch-url", "an OpenSearch to use instead of the embedded one"),
        ("opensearch-username", "user for basic authentication"),
        ("opensearch-password", "reference to the password: env:NAME"),
        ("catalog-properties", "Iceberg catalog properties as JSON, instead of the embedded catalog"),
    ):
        add_option(parser, name, text)
    parser.add_argument("--keep", action="store_true", help="leave OpenSearch running, and show commands to try")
    parser.add_argument("--output", default=str(ROOT / "build" / "demo"), help="folder for the results, emptied first")
    return parser


if __name__ == "__main__":
    sys.exit(main())
