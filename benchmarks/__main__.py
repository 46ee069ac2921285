"""`make bench`: reading changes against Spark's own changelog, and writing against the client's own helpers.

Usage: python -m benchmarks [--rows 3000000] [--documents 300000] [--rounds 3] [--output build/bench]

Absolute times say little on a shared machine, so the contestants take turns in each round and only ratios of one run
are to be quoted. The table goes to the terminal, all figures to `bench.json` in the output folder.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.changes import ChangesBenchmark
from benchmarks.sink import SinkBenchmark
from icecdc_core import SyncConfig, get_spark
from icecdc_core.local import running_opensearch

KINDS = ((2, "copy-on-write"), (3, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read"))


def main() -> None:
    """Run the benchmarks and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the table whose changes are read")
    parser.add_argument("--documents", type=int, default=300_000, help="documents that are written")
    parser.add_argument("--rounds", type=int, default=3, help="rounds in which the contestants take turns")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="folder for bench.json")
    given = parser.parse_args()
    warehouse = Path(tempfile.mkdtemp(prefix="icecdc-bench-"))
    try:
        with running_opensearch() as url:
            config = SyncConfig(
                table="lake.bench.wide",
                index="wide",
                opensearch_url=url,
                warehouse=str(warehouse),
                number_of_replicas=0,
                spark_conf={"spark.driver.memory": "4g"},
            )
            spark = get_spark(config)
            spark.sparkContext.setLogLevel("ERROR")
            figures = {}
            for version, mode in KINDS:
                title = f"changes, v{version} {mode}"
                print(title, flush=True)
                changes = ChangesBenchmark(spark, config.table, given.rows, version, mode)
                figures[title] = _race(changes.contestants(), given.rounds)
            print("documents", flush=True)
            sink = SinkBenchmark(spark, config, given.documents)
            figures["documents into OpenSearch"] = _race(sink.contestants(), given.rounds)
            spark.stop()
    finally:
        shutil.rmtree(warehouse, ignore_errors=True)
    given.output.mkdir(parents=True, exist_ok=True)
    sizes = {"rows": given.rows, "documents": given.documents, "rounds": given.rounds}
    (given.output / "bench.json").write_text(json.dumps({"sizes": sizes, "seconds": figures}, indent=2))
    for title, seconds in figures.items():
        _print_table(title, seconds)


def _race(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Let every contestant run once unmeasured and then in turn; returns seconds per round."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            taken = run()
            print(f"  {'warm-up' if number == 0 else f'round {number}'}: {name}: {taken:.2f} s", flush=True)
            if number:
                seconds[name].append(round(taken, 3))
    return seconds


def _print_table(title: str, seconds: dict[str, list[float]]) -> None:
    ours: Any = next(iter(seconds.values()))
    print(f"\n{title}\n  {'':52}{'min s':>9}{'median s':>10}{'times icecdc':>14}")
    for name, taken in seconds.items():
        ratio = statistics.median(other / own for other, own in zip(taken, ours, strict=True))
        print(f"  {name:52}{min(taken):9.2f}{statistics.median(taken):10.2f}{ratio:14.2f}")


if __name__ == "__main__":
    main()
