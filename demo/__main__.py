"""`make demo`: export real tables to a real OpenSearch, run a day of operations, sync, and validate every index."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.console import add_option, timed_step
from demo.day import FLIGHTS, TABLES, DemoTable, create_tables, day_of_operations
from demo.results import TableResult, run_notebook, summary
from demo.searches import answers, commands_to_try
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
    from opensearchpy import OpenSearch

INDEX_FILE = ROOT / "demo" / "indexes.yml"
EXPLORE = "50_explore"


class Demo:
    """One run of the demo."""

    def __init__(self, overrides: dict[str, Any], output: Path) -> None:
        self.overrides = overrides
        self.configs = SyncConfig.load_all(INDEX_FILE, **overrides)
        self.output = output
        self.results = {table.name: TableResult(table.name) for table in TABLES}

    def run(self) -> bool:
        """Run all steps; returns whether every index equals its table."""
        with timed_step("Spark starts"):
            spark = open_spark(self._config_for(FLIGHTS))
            spark.sparkContext.setLogLevel("ERROR")
        with timed_step("indexes of an earlier demo are removed"):
            remove_indexes(self.configs)
        with timed_step(f"{len(TABLES)} Iceberg tables are created from {display_path(ROOT / 'data')}"):
            create_tables(spark, ROOT / "data")
        self._notebook("00_setup")
        self.results["flights"].export = self._notebook("10_initial_export")
        self._other_tables("export", lambda config: export_table(spark, config))
        print_line("A day of operations:")
        operations = day_of_operations(spark)
        while True:
            begin = time.monotonic()
            what = next(operations, "")
            if not what:
                break
            print_line(f"  - {what} ({time.monotonic() - begin:.1f} s)")
        self.results["flights"].sync = self._notebook("20_incremental_cdc")
        self._other_tables("sync", lambda config: sync_changes(spark, config))
        self.results["flights"].validation = self._notebook("30_validation")
        self._other_tables("validation", lambda config: validate_table(spark, config))
        spark.stop()
        exported = self.results["flights"].export["to_snapshot_id"]
        self._notebook(EXPLORE, from_snapshot=str(exported), query="dest:SFO AND arr_delay:>600")
        return all(result.validation["ok"] for result in self.results.values())

    def _config_for(self, table: DemoTable) -> SyncConfig:
        return self.configs[f"demo-{table.name}"]

    def _other_tables(self, stage: str, work: Callable[[SyncConfig], RunReport | ValidationReport]) -> None:
        """Run one stage for all other tables, in this session."""
        for table in TABLES:
            if table is not FLIGHTS:
                with timed_step(f"{stage} of {table.name}"):
                    setattr(self.results[table.name], stage, work(self._config_for(table)).to_dict())

    def _notebook(self, name: str, **own: str) -> dict[str, Any]:
        """Execute a notebook for the flights and return its report."""
        parameters = {**self.overrides, **own, "index_file": str(INDEX_FILE), "index": f"demo-{FLIGHTS.name}"}
        with timed_step(f"notebook {name} for flights"):
            return run_notebook(ROOT / "notebooks" / f"{name}.ipynb", self.output, parameters)

    def searches(self) -> list[str]:
        """Try the searches of the demo; returns each with its answer."""
        with closing(self._client()) as client:
            return list(answers(client))

    def _client(self) -> OpenSearch:
        return Connection.of(self._config_for(FLIGHTS)).client()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns 0 when every index equals its table."""
    options = _parser().parse_args(arguments)
    output = Path(options.output).absolute()
    kept: dict[str, Any] = {}

    def work() -> bool:
        print_line("OpenSearch: " + (options.opensearch_url or "an embedded one starts on loopback"))
        given = options.opensearch_url
        with _server(given, options.keep) as url:
            kept.update(_overrides(options, url, output))
            demo = Demo(kept, output)
            equal = demo.run()
            print_line(f"\n{summary(demo.results.values())}\n")
            print_line("\n".join([*demo.searches(), ""]))
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
