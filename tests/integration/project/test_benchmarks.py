"""The benchmarks at a smoke size: their contestants must agree on the result; times do not matter here."""

import pytest

from benchmarks.changes import ChangesBenchmark
from benchmarks.ingest import PARTITIONS, IngestBenchmark, ManyTablesBenchmark
from benchmarks.jobs import SmallChangeBenchmark, WholeTableBenchmark
from benchmarks.planning import KINDS, PlanningBenchmark
from benchmarks.ranges import RangesBenchmark
from benchmarks.sink import SinkBenchmark
from tests.given.kafka_topics import Topic


@pytest.mark.tools
def it_gives_the_same_results_as_its_contestants(spark, sql, warehouse, kafka, make_config, name):
    sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
    config, topic, folder = make_config(), Topic(kafka, PARTITIONS), str(warehouse)
    small, ranges = SmallChangeBenchmark(spark, config, 100, 2), RangesBenchmark(spark, f"lake.{name}", 2000, 10)
    for contestants in (
        IngestBenchmark(spark, kafka, folder, 500, topic.name).contestants(),
        ManyTablesBenchmark(spark, kafka, folder, 3).contestants(),
        ChangesBenchmark(spark, f"lake.{name}.cow", 2000, 2, "copy-on-write").contestants(),
        ChangesBenchmark(spark, f"lake.{name}.mor", 2000, 3, "merge-on-read").contestants(),
        SinkBenchmark(spark, make_config(index=f"{name}-sink"), 500).contestants(),
        {**ranges.many_snapshots(), **ranges.compaction()},
        *(PlanningBenchmark(spark, f"lake.{name}.plan_{n}", 30, kind).contestants() for n, kind in enumerate(KINDS)),
        {**small.contestants(), **WholeTableBenchmark(spark, config, 200).contestants()},
    ):
        assert contestants
        for run in contestants.values():
            run()  # it ends with an error when its result is wrong
    assert len(small.stages) == 4
