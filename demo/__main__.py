"""`make demo`: real tables, a real OpenSearch, a day of operations, and the proof that the indexes are equal."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from demo.day import FLIGHTS, TABLES, DemoTable, create_tables, day_of_operations
from demo.results import TableResult, run_notebook, summary
from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError, DependencyError, IcecdcError
from icecdc_core.jobs.export import export_table
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.jobs.validate import validate_table
from icecdc_core.local import running_opensearch
from icecdc_core.notebook import open_spark
from icecdc_core.opensearch.client import Connection
from icecdc_core.reporting.reports import RunReport, ValidationReport

ROOT = Path(__file__).resolve().parents[1]
POSITIONS_INDEX = "icecdc-demo-positions"


class Demo:
    """One run of the demo.

    Args:
        config: The parameters all tables share; its table is the first one.
        output: Folder for the executed notebooks.
    """

    def __init__(self, config: SyncConfig, output: Path) -> None:
        self.config = config
        self.output = output
        self.results = {table.name: TableResult(table.name) for table in TABLES}

    def run(self) -> bool:
        """Run it all; returns whether every index equals its table."""
        with told("Spark starts"):
            spark = open_spark(self.config)
            spark.sparkContext.setLogLevel("ERROR")
        with told("indexes of an earlier demo are removed"):
            self._remove_indexes()
        with told(f"{len(TABLES)} Iceberg tables are created from {shown(ROOT / 'data')}"):
            create_tables(spark, ROOT / "data")
        self._notebook("00_setup")
        self.results["flights"].export = self._notebook("10_initial_export")
        self._others("export", lambda config: export_table(spark, config))
        tell("A day of operations:")
        operations = day_of_operations(spark)
        while True:
            begin = time.monotonic()
            what = next(operations, "")
            if not what:
                break
            tell(f"  - {what} ({time.monotonic() - begin:.1f} s)")
        self.results["flights"].sync = self._notebook("20_incremental_cdc")
        self._others("sync", lambda config: sync_changes(spark, config))
        self.results["flights"].validation = self._notebook("30_validation")
        self._others("validation", lambda config: validate_table(spark, config))
        spark.stop()
        return all(result.validation["ok"] for result in self.results.values())

    def _of(self, table: DemoTable) -> SyncConfig:
        return self.config.replace(table=table.full_name, index=f"demo-{table.name}")

    def _others(self, stage: str, work: Callable[[SyncConfig], RunReport | ValidationReport]) -> None:
        """The small tables, in one session."""
        for table in TABLES:
            if table is not FLIGHTS:
                with told(f"{stage} of {table.name}"):
                    setattr(self.results[table.name], stage, work(self._of(table)).to_dict())

    def _notebook(self, name: str) -> dict[str, Any]:
        """Execute a notebook for the flights; its report."""
        config = self._of(FLIGHTS)
        given = [key for key in SyncConfig.model_fields if key in config.model_fields_set]
        parameters = {key: getattr(config, key) for key in given}
        with told(f"notebook {name} for flights"):
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
    """Run the demo; 0 when everything is equal."""
    options = _parser().parse_args(arguments)
    output = Path(options.output).absolute()

    def work() -> bool:
        tell("OpenSearch: " + (options.opensearch_url or "an embedded one starts on loopback"))
        given = options.opensearch_url
        with nullcontext(given) if given else running_opensearch() as url:
            demo = Demo(_config(options, url, output), output)
            equal = demo.run()
            tell(f"\n{summary(demo.results.values())}\n\nExecuted notebooks: {shown(output)}/*.html")
        return equal

    return carried_out(work, output)


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
    parser = argparse.ArgumentParser(prog="python -m icecdc_core.demo", description=__doc__)
    for name, text in (
        ("opensearch-url", "an OpenSearch to use instead of the embedded one"),
        ("opensearch-username", "user for basic authentication"),
        ("opensearch-password", "reference to the password: env:NAME"),
        ("catalog-properties", "Iceberg catalog properties as JSON, instead of the embedded catalog"),
    ):
        add_option(parser, name, text)
    parser.add_argument("--output", default=str(ROOT / "build" / "demo"), help="folder for the results, emptied first")
    return parser


def carried_out(work: Callable[[], bool], output: Path) -> int:
    """Do a demo's work on an emptied folder and tell how it ended; 0 when every index equals its table."""
    begin = time.monotonic()
    # Kernels start in a process of their own and must find this package even when it is not installed.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    try:
        require_checkout()
        make_empty(output)
        equal = work()
    except IcecdcError as error:
        tell(f"The demo stopped: {error}", sys.stderr)
        return 1
    verdict = "Every index equals its table" if equal else "NOT every index equals its table"
    tell(f"{verdict}. {time.monotonic() - begin:.0f} s in all.")
    return 0 if equal else 1


def add_option(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """An option that can also be given as an environment variable."""
    variable = "ICECDC_" + name.replace("-", "_").upper()
    parser.add_argument(f"--{name}", default=os.environ.get(variable, ""), help=f"{text} [{variable}]")


def require_checkout() -> None:
    """Refuse to run outside of a clone; raises DependencyError."""
    missing = [name for name in ("notebooks", "data") if not (ROOT / name).is_dir()]
    if missing:
        raise DependencyError(
            f"The demo needs the folder {missing[0]} of the repository",
            subject="folder",
            value=str(ROOT / missing[0]),
            remedy="run `make demo` in a clone of the repository",
        )


def make_empty(output: Path) -> None:
    """Make the folder anew; one that no demo made is left alone."""
    mark = output / ".icecdc-demo"
    if output.exists() and not mark.exists() and any(output.iterdir()):
        raise ConfigError(
            "The folder for the results holds files that no demo wrote",
            subject="--output",
            value=str(output),
            remedy="give an empty folder, or one that does not exist yet",
        )
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    mark.touch()


def shown(path: Path) -> str:
    """The path as it is told."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Tell what was done, and how long it took."""
    begin = time.monotonic()
    yield
    tell(f"{what} ({time.monotonic() - begin:.1f} s)")


def tell(text: str, stream: Any = None) -> None:
    """Say something on the terminal."""
    print(text, file=stream or sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
