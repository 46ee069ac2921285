"""`make demo`: export real tables to a real OpenSearch, run a day of operations, sync, and validate every index."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from demo.console import add_option, print_line, timed_step
from demo.day import FLIGHTS, TABLES, DemoTable, create_tables, day_of_operations
from demo.results import TableResult, run_notebook, summary
from demo.workspace import ROOT, display_path, run_in_folder
from icecdc_core.config import SyncConfig
from icecdc_core.jobs.export import export_table
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.jobs.validate import validate_table
from icecdc_core.local import running_opensearch
from icecdc_core.notebook import open_spark
from icecdc_core.opensearch.client import Connection
from icecdc_core.reporting.reports import RunReport, ValidationReport

POSITIONS_INDEX = "icecdc-demo-positions"


class Demo:
    """One run of the demo.

    Args:
        config: The parameters that all tables share; its table is the first one.
        output: Folder for the executed notebooks.
    """

    def __init__(self, config: SyncConfig, output: Path) -> None:
        self.config = config
        self.output = output
        self.results = {table.name: TableResult(table.name) for table in TABLES}

    def run(self) -> bool:
        """Run all steps; returns whether every index equals its table."""
        with timed_step("Spark starts"):
            spark = open_spark(self.config)
            spark.sparkContext.setLogLevel("ERROR")
        with timed_step("indexes of an earlier demo are removed"):
            self._remove_indexes()
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
        return all(result.validation["ok"] for result in self.results.values())

    def _config_for(self, table: DemoTable) -> SyncConfig:
        return self.config.replace(table=table.full_name, index=f"demo-{table.name}")

    def _other_tables(self, stage: str, work: Callable[[SyncConfig], RunReport | ValidationReport]) -> None:
        """Run one stage for all other tables, in this session."""
        for table in TABLES:
            if table is not FLIGHTS:
                with timed_step(f"{stage} of {table.name}"):
                    setattr(self.results[table.name], stage, work(self._config_for(table)).to_dict())

    def _notebook(self, name: str) -> dict[str, Any]:
        """Execute a notebook for the flights and return its report."""
        config = self._config_for(FLIGHTS)
        given = [key for key in SyncConfig.model_fields if key in config.model_fields_set]
        parameters = {key: getattr(config, key) for key in given}
        with timed_step(f"notebook {name} for flights"):
            return run_notebook(ROOT / "notebooks" / f"{name}.ipynb", self.output, parameters)

    def _remove_indexes(self) -> None:
        client = Connection.of(self.config).client()
        names = [f"demo-{table.name}--*" for table in TABLES]
        client.indices.delete(
            index=",".join([*names, POSITIONS_INDEX]),
            params={"ignore_unavailable": "true", "expand_wildcards": "all"},
        )
        client.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns 0 when every index equals its table."""
    options = _parser().parse_args(arguments)
    output = Path(options.output).absolute()

    def work() -> bool:
        print_line("OpenSearch: " + (options.opensearch_url or "an embedded one starts on loopback"))
        given = options.opensearch_url
        with nullcontext(given) if given else running_opensearch() as url:
            demo = Demo(_config(options, url, output), output)
            equal = demo.run()
            print_line(f"\n{summary(demo.results.values())}\n\nExecuted notebooks: {display_path(output)}/*.html")
        return equal

    return run_in_folder(work, output)


def _config(options: argparse.Namespace, url: str, output: Path) -> SyncConfig:
    return SyncConfig(
        table=FLIGHTS.full_name,
        index=f"demo-{FLIGHTS.name}",
        opensearch_url=url,
        opensearch_username=options.opensearch_username,
        opensearch_password=options.opensearch_password,
        catalog_properties=options.catalog_properties,
        warehouse="" if options.catalog_properties else str(output / "warehouse"),
        positions_index=POSITIONS_INDEX,
        number_of_replicas=0,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    for name, text in (
        ("opensearch-url", "an OpenSearch to use instead of the embedded one"),
        ("opensearch-username", "user for basic authentication"),
        ("opensearch-password", "reference to the password: env:NAME"),
        ("catalog-properties", "Iceberg catalog properties as JSON, instead of the embedded catalog"),
    ):
        add_option(parser, name, text)
    parser.add_argument("--output", default=str(ROOT / "build" / "demo"), help="folder for the results, emptied first")
    return parser


if __name__ == "__main__":
    sys.exit(main())
