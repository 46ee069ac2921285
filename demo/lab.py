"""`make lab`: JupyterLab on the demo's tables, with the notebooks' parameters filled in."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import nbformat

from demo.console import add_option, print_line, timed_step
from demo.day import FLIGHTS, TABLES, create_tables
from demo.workspace import ROOT, display_path, remove_indexes, require_clone
from icecdc_core.config import SyncConfig
from icecdc_core.errors import IcecdcError
from icecdc_core.local import running_opensearch, status
from icecdc_core.local.opensearch import choose_runtime
from icecdc_core.notebook import open_spark

INDEX_FILE = ROOT / "demo" / "indexes.yml"
DAY_NOTEBOOK = "15_day_of_operations.ipynb"
_DAY_CELL = """\
from demo.day import day_of_operations
from icecdc_core import SyncConfig
from icecdc_core.notebook import open_spark

spark = open_spark(SyncConfig.load(index_file, index, warehouse=warehouse))
for what in day_of_operations(spark):
    print(what)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare tables and notebooks, run JupyterLab until it ends, and return its exit code."""
    options, for_jupyter = _parser().parse_known_args(arguments)
    output = Path(options.output).absolute()
    try:
        require_clone()
        with _ended_by(_exit), _opensearch(options.opensearch_url, output) as url:
            overrides = {"opensearch_url": url, "warehouse": str(output / "warehouse")}
            SyncConfig.load(INDEX_FILE, options.index, **overrides)  # refuses a wrong index before Spark starts
            if not _tables_made(options.index, overrides):
                return 1
            parameters = {"index_file": str(INDEX_FILE), "index": options.index, **overrides}
            for notebook in prepare_notebooks(output, parameters):
                print_line(f"  {display_path(notebook)}")
            write_kernel(output / "jupyter")
            print_line("JupyterLab starts; its address is below. Ctrl-C twice ends it, and what was started for it.")
            return _run_lab(output, for_jupyter)
    except IcecdcError as error:
        print_line(f"JupyterLab was not started: {error}", sys.stderr)
        return 1


def prepare_notebooks(output: Path, parameters: Mapping[str, str]) -> list[Path]:
    """Copy the notebooks of an index with these parameters; a copy that is there keeps its other cells."""
    output.mkdir(parents=True, exist_ok=True)
    sources = {path.name: _read(path) for path in (ROOT / "notebooks").glob("*.ipynb")}
    sources = {name: node for name, node in sources.items() if _parameters_cells(node)}
    sources[DAY_NOTEBOOK] = _day_notebook()
    for name, source in sorted(sources.items()):
        copy = output / name
        node = _read(copy) if copy.exists() else source
        for cell in _parameters_cells(node):
            for parameter, value in parameters.items():
                cell.source = _with_value(cell.source, parameter, value)
        nbformat.write(node, copy)  # type: ignore[no-untyped-call]
    return [output / name for name in sorted(sources)]


def write_kernel(folder: Path) -> None:
    """Write the kernel `python3` that runs this Python: one of the user's with that name must not run the notebooks."""
    kernel = folder / "kernels" / "python3"
    kernel.mkdir(parents=True, exist_ok=True)
    specification = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "icecdc",
        "language": "python",
        "env": {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))},
    }
    (kernel / "kernel.json").write_text(json.dumps(specification, indent=1), encoding="utf-8")


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def _with_value(source: str, parameter: str, value: str) -> str:
    """The source of a parameters cell with another value of this parameter."""
    line = re.compile(rf"^({parameter}: \w+ = )[^#\n]*?(  #.*)?$", re.MULTILINE)
    return line.sub(lambda match: f"{match[1]}{json.dumps(value)}{match[2] or ''}", source)


def _parameters_cells(node: Any) -> list[Any]:
    """The cells that set the parameters of an index; an ingest has none."""
    return [cell for cell in node.cells if cell.cell_type == "code" and "index_file: str" in cell.source]


def _day_notebook() -> Any:
    """A notebook that changes the tables, between the export and the sync."""
    v4: Any = nbformat.v4
    names = ("index_file", "index", "warehouse")
    heading = "# A day of operations\n\nDeletes, updates, merges and inserts: one snapshot each, for the sync to find."
    cells = [v4.new_code_cell("\n".join(f'{name}: str = ""' for name in names)), v4.new_code_cell(_DAY_CELL)]
    return v4.new_notebook(
        cells=[v4.new_markdown_cell(heading), *cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )


@contextmanager
def _ended_by(end: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call this for the signals that ask a process to end: SIGTERM, and SIGHUP, which a closed terminal sends."""
    # `nohup` ignores SIGHUP, and this respects it.
    asked = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, end) for number in asked]
    try:
        yield
    finally:
        for number, handler in zip(asked, before, strict=True):
            signal.signal(number, handler)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


@contextmanager
def _opensearch(given: str, output: Path) -> Iterator[str]:
    """Yield the URL of a server: the given one, the one in the background, or one that runs as long as the block."""
    running = status()
    if given or running:
        yield given or (running.url if running else "")
        return
    # Beside the warehouse, because the indexes are those of its tables. 2.19 cannot read what 3.x wrote.
    data = output / f"opensearch-{choose_runtime().version.split('.')[0]}"
    with ExitStack() as server:
        with timed_step("OpenSearch starts on loopback"):
            url = server.enter_context(running_opensearch(data_folder=data))
        yield url
    print_line(f"OpenSearch was stopped; its data are kept in {display_path(data)}.")


def _tables_made(index: str, overrides: Mapping[str, str]) -> bool:
    """Create the demo's tables in a process of its own: Spark's JVM ends with it, and Lab's kernels have the memory."""
    process = multiprocessing.get_context("spawn").Process(target=_make_tables, args=(index, dict(overrides)))
    process.start()
    try:
        process.join()
    finally:
        process.terminate()
    return process.exitcode == 0


def _make_tables(index: str, overrides: Mapping[str, str]) -> None:
    """Create the demo's tables, unless they are there from an earlier time; indexes of other tables do not fit them."""
    try:
        with timed_step("Spark starts"):
            spark = open_spark(SyncConfig.load(INDEX_FILE, index, **overrides))
            spark.sparkContext.setLogLevel("ERROR")
    except IcecdcError as error:
        print_line(f"The tables were not created: {error}", sys.stderr)
        sys.exit(1)
    if all(spark.catalog.tableExists(table.full_name) for table in TABLES):
        print_line("The tables of an earlier time are used")
    else:
        with timed_step(f"{len(TABLES)} Iceberg tables are created from {display_path(ROOT / 'data')}"):
            create_tables(spark, ROOT / "data")
        remove_indexes(SyncConfig.load_all(INDEX_FILE, **overrides))
    spark.stop()


def _run_lab(output: Path, arguments: Sequence[str]) -> int:
    """Run JupyterLab on loopback until it ends; a signal to this process ends Lab first."""
    # Before the user's folders, so that the kernel in it is found first.
    path = os.pathsep.join(filter(None, [str(output / "jupyter"), os.environ.get("JUPYTER_PATH", "")]))
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={output}", "--ServerApp.ip=127.0.0.1"]
    command += ["--allow-root"] if os.geteuid() == 0 else []
    command += [f"--LabApp.default_url=/lab/tree/{sorted(output.glob('*.ipynb'))[0].name}", *arguments]
    lab = subprocess.Popen(command, cwd=output, env={**os.environ, "JUPYTER_PATH": path})

    def end(number: int, frame: FrameType | None) -> None:
        lab.terminate()

    # Ctrl-C reaches Lab too, which asks whether it is meant.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _ended_by(end):
            return lab.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo.lab", description=f"{__doc__} Other options go to JupyterLab.", allow_abbrev=False
    )
    add_option(parser, "opensearch-url", "an OpenSearch to use instead of the embedded one")
    parser.add_argument("--index", default=f"demo-{FLIGHTS.name}", help="index of demo/indexes.yml that they work on")
    parser.add_argument("--output", default=str(ROOT / "build" / "lab"), help="folder for warehouse and notebooks")
    return parser


if __name__ == "__main__":
    sys.exit(main())
