"""The benchmarks at a smoke size: their contestants must agree on the result; times do not matter here."""

import pytest

from benchmarks import planning
from benchmarks.changes import ChangesBenchmark
from benchmarks.ingest import PARTITIONS, IngestBenchmark, ManyTablesBenchmark
from benchmarks.jobs import SmallChangeBenchmark, WholeTableBenchmark
from benchmarks.ranges import RangesBenchmark
from benchmarks.sink import SinkBenchmark
from tests.kafka_topics import Topic


@pytest.mark.tools
class DescribeTheBenchmarks:
    def it_ingests_every_record_as_its_contestants_do(self, spark, warehouse, kafka):
        topic = Topic(kafka, PARTITIONS)
        contestants = IngestBenchmark(spark, kafka, str(warehouse), 500, topic.name).contestants()
        assert min(run() for run in contestants.values()) > 0

    def it_ingests_into_many_tables(self, spark, warehouse, kafka):
        contestants = ManyTablesBenchmark(spark, kafka, str(warehouse), 3).contestants()
        assert len([run() for run in contestants.values()]) == 4

    @pytest.mark.parametrize(("version", "mode"), [(2, "copy-on-write"), (3, "merge-on-read")])
    def it_finds_the_same_changes_as_its_contestants(self, spark, sql, name, version, mode):
        contestants = ChangesBenchmark(spark, f"lake.ns.{name}", 2000, version, mode).contestants()
        taken = {who: run() for who, run in contestants.items()}
        assert (next(iter(taken)).startswith("icecdc"), min(taken.values()) > 0) == (True, True)

    def it_writes_the_same_documents_as_its_contestants(self, spark, make_config):
        contestants = SinkBenchmark(spark, make_config(), 500).contestants()
        assert min(run() for run in contestants.values()) > 0

    def it_finds_the_same_in_many_snapshots_at_once_and_one_by_one(self, spark, name):
        benchmark = RangesBenchmark(spark, f"lake.{name}", 2000, 10)
        contestants = {**benchmark.many_snapshots(), **benchmark.compaction()}
        assert min(run() for run in contestants.values()) > 0

    @pytest.mark.parametrize("kind", planning.KINDS)
    def it_plans_the_one_file_that_changed(self, spark, name, kind):
        contestants = planning.PlanningBenchmark(spark, f"lake.ns.{name}", 30, kind).contestants()
        assert min(run() for run in contestants.values()) > 0

    def it_makes_one_changed_row_searchable_and_proves_whole_tables(self, spark, make_config):
        config = make_config()
        small = SmallChangeBenchmark(spark, config, 100, 2)
        contestants = {**small.contestants(), **WholeTableBenchmark(spark, config, 200).contestants()}
        assert (min(run() for run in contestants.values()) > 0, len(small.stages)) == (True, 4)
