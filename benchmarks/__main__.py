"""`make bench`: reading changes against Spark's own changelog, writing against the client's own helpers, whole jobs.

Usage: python -m benchmarks [--parts changes,sink] [--rows 3000000] [--documents 300000] [--rounds 3] [--output FOLDER]

Absolute times say little on a shared machine. So the contestants take turns in each round, and only ratios of one run
count. Every contestant's result is checked. The tables go to the terminal; all figures go to `bench.json` in the output
folder, next to two charts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import charts, memory, planning
from benchmarks.changes import ChangesBenchmark
from benchmarks.growth import GrowthBenchmark
from benchmarks.ingest import PARTITIONS, IngestBenchmark, ManyTablesBenchmark
from benchmarks.jobs import NestedBenchmark, SmallChangeBenchmark, WholeTableBenchmark
from benchmarks.ranges import RangesBenchmark
from benchmarks.sink import SinkBenchmark
from icecdc_core import SyncConfig, get_spark
from icecdc_core.dependencies import installed_version
from icecdc_core.ingest import IngestConfig
from icecdc_core.local import running_opensearch
from icecdc_core.local.kafka import running_kafka
from icecdc_core.session.jars import ICEBERG_RUNTIMES, spark_line
from icecdc_core.session.jvm import java_class

KINDS = ((2, "copy-on-write"), (3, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read"))
Contest = tuple[str, dict[str, Callable[[], float]]]


def main() -> None:
    """Run the benchmarks and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(ALL), help=f"which to run, from {', '.join(ALL)}")
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the table whose changes are read")
    parser.add_argument("--documents", type=int, default=300_000, help="documents that are written")
    parser.add_argument("--files", type=int, default=100_000, help="data files of the table that is only planned")
    parser.add_argument("--commits", type=int, default=100, help="commits in the range of many snapshots")
    parser.add_argument("--rounds", type=int, default=3, help="rounds in which the contestants take turns")
    parser.add_argument("--times-heap", type=float, default=10, help="the large change set, in heaps of its executor")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="folder for bench.json and the charts")
    given = parser.parse_args()
    parts = given.parts.split(",")
    unknown = set(parts) - set(ALL)
    if unknown:
        parser.error(f"--parts: unknown: {', '.join(sorted(unknown))}; choose from {', '.join(ALL)}")
    warehouse = Path(tempfile.mkdtemp(prefix="icecdc-bench-"))
    figures: dict[str, dict[str, list[float]]] = {}
    stages: dict[str, dict[str, float]] = {}
    sizes = {name: value for name, value in vars(given).items() if isinstance(value, int)}
    machine = {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()}
    versions = {name: installed_version(name) for name in ("pyspark", "pyarrow", "opensearch-py", "pyiceberg")}
    found: dict[str, Any] = {"machine": machine, "versions": {"python": platform.python_version(), **versions}}
    found |= {"sizes": sizes, "seconds": figures, "stage_seconds": stages, "memory": {}}
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
            spark = get_spark(_with_kafka(config))
            java = java_class(spark, "java.lang.System").getProperty("java.version")
            found["versions"] |= {"java": java, "iceberg": ICEBERG_RUNTIMES[spark_line(spark.version)]}
            spark.sparkContext.setLogLevel("ERROR")
            for part in parts:
                if part in PARTS:
                    for title, contestants in PARTS[part](spark, config, given, stages):
                        print(title, flush=True)
                        figures[title] = _race(contestants, given.rounds)
            prepared = memory.prepare(spark, config, given.times_heap) if MEMORY in parts else None
            spark.stop()
            _keep(found, given.output)
            for title, seconds in figures.items():
                _print_table(title, seconds)
            for name, seconds_of in stages.items():
                print(f"\n{name}: " + ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in seconds_of.items()))
            if prepared:
                # Last and without the session above, which would share the machine's memory with it.
                found["memory"] = memory.measure(prepared)
                _keep(found, given.output)
                _print_memory(found["memory"])
    finally:
        shutil.rmtree(warehouse, ignore_errors=True)


def _changes(spark: SparkSession, config: SyncConfig, given: argparse.Namespace, stages: Any) -> Iterator[Contest]:
    for version, mode in KINDS:
        benchmark = ChangesBenchmark(spark, config.table, given.rows, version, mode)
        yield f"changes, v{version} {mode}", benchmark.contestants()


def _ranges(spark: SparkSession, config: SyncConfig, given: argparse.Namespace, stages: Any) -> Iterator[Contest]:
    benchmark = RangesBenchmark(spark, config.table.rsplit(".", 1)[0], given.rows // 3, given.commits)
    yield "many snapshots", benchmark.many_snapshots()
    yield "compaction in the range", benchmark.compaction()


def _planning(spark: SparkSession, config: SyncConfig, given: argparse.Namespace, stages: Any) -> Iterator[Contest]:
    name = f"{config.table.rsplit('.', 1)[0]}.planned"
    for kind in planning.KINDS:
        benchmark = planning.PlanningBenchmark(spark, name, given.files, kind)
        yield f"planning, {given.files} data files, {kind}", benchmark.contestants()


def _jobs(spark: SparkSession, config: SyncConfig, given: argparse.Namespace, stages: Any) -> Iterator[Contest]:
    small = SmallChangeBenchmark(spark, config, given.documents // 30, 8)
    yield "one changed row, commit to searchable", small.contestants()
    stages.update(small.stages)
    yield "whole table", WholeTableBenchmark(spark, config, given.documents).contestants()


def _nested(spark: SparkSession, config: SyncConfig, given: argparse.Namespace, stages: Any) -> Iterator[Contest]:
    yield "documents of three tables", NestedBenchmark(spark, config, given.documents).contestants()


def _sink(spark: SparkSession, config: SyncConfig, given: argparse.Namespace, stages: Any) -> Iterator[Contest]:
    yield "documents into OpenSearch", SinkBenchmark(spark, config, given.documents).contestants()


def _growth(spark: SparkSession, config: SyncConfig, given: argparse.Namespace, stages: Any) -> Iterator[Contest]:
    growth = GrowthBenchmark(spark, config, given.rows * 10 // 3)
    yield f"{charts.GROWTH}rows changed", growth.rows_changed()
    yield f"{charts.GROWTH}table size", growth.table_size()
    yield f"{charts.GROWTH}columns", growth.columns()
    yield f"{charts.GROWTH}cores", growth.cores()


def _ingest(spark: SparkSession, config: SyncConfig, given: argparse.Namespace, stages: Any) -> Iterator[Contest]:
    settings = {"auto.create.topics.enable": "true", "num.partitions": str(PARTITIONS)}
    with running_kafka(settings=settings) as servers:
        yield "Kafka into Iceberg", IngestBenchmark(spark, servers, config.warehouse, given.rows).contestants()
        yield "a table more in a batch", ManyTablesBenchmark(spark, servers, config.warehouse).contestants()


def _with_kafka(config: SyncConfig) -> IngestConfig:
    """The session of the benchmarks, with Kafka's connector."""
    return IngestConfig(
        job="bench",
        bootstrap_servers="127.0.0.1:9092",
        topics="bench",
        table=config.table,
        warehouse=config.warehouse,
        spark_conf=dict(config.spark_conf),
    )


PARTS = {
    "changes": _changes,
    "ranges": _ranges,
    "planning": _planning,
    "jobs": _jobs,
    "nested": _nested,
    "sink": _sink,
    "growth": _growth,
    "ingest": _ingest,
}
MEMORY = "memory"
ALL = (*PARTS, MEMORY)


def _race(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run every contestant once unmeasured, then in turn; returns the seconds of each round."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            elapsed = run()
            print(f"  {'warm-up' if number == 0 else f'round {number}'}: {name}: {elapsed:.2f} s", flush=True)
            if number:
                seconds[name].append(round(elapsed, 3))
    return seconds


def _keep(found: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(found, indent=2))
    charts.draw(found, folder)


def _print_table(title: str, seconds: dict[str, list[float]]) -> None:
    first: Any = next(iter(seconds.values()))
    print(f"\n{title}\n  {'':52}{'min s':>9}{'median s':>10}{'times first':>14}")
    for name, rounds in seconds.items():
        ratio = statistics.median(other / own for other, own in zip(rounds, first, strict=True))
        print(f"  {name:52}{min(rounds):9.2f}{statistics.median(rounds):10.2f}{ratio:14.2f}")


def _print_memory(large: dict[str, Any]) -> None:
    samples = large["samples"]
    peaks = {kind: max(sample[kind] for sample in samples) for kind in samples[0] if kind != "seconds"}
    print(
        f"\n{large['rows']} rows changed, {large['change_set_bytes'] / 1e9:.1f} GB, with an executor of "
        f"{large['executor_bytes'] / 1e9:.1f} GB: {large['seconds']:.0f} s, {large['spilled_bytes'] / 1e9:.1f} GB "
        f"spilled; most megabytes: " + ", ".join(f"{kind} {most:.0f}" for kind, most in peaks.items())
    )


if __name__ == "__main__":
    main()
