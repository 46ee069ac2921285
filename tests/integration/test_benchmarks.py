"""The benchmarks at a smoke size: their contestants must agree on the result; times do not matter here."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import KINDS
from benchmarks.changes import ChangesBenchmark
from benchmarks.sink import SinkBenchmark


class DescribeTheBenchmarks:
    @pytest.mark.parametrize(("version", "mode"), KINDS)
    def it_finds_the_same_changes_as_its_contestants(self, spark, sql, name, version, mode):
        contestants = ChangesBenchmark(spark, f"lake.ns.{name}", 2000, version, mode).contestants()
        taken = {who: run() for who, run in contestants.items()}
        assert (next(iter(taken)).startswith("icecdc"), min(taken.values()) > 0) == (True, True)

    def it_writes_the_same_documents_as_its_contestants(self, spark, make_config):
        contestants = SinkBenchmark(spark, make_config(), 500).contestants()
        assert min(run() for run in contestants.values()) > 0
