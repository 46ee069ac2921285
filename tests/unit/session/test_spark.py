"""Settings for groups apply in their block only; rows are counted by the action that reads them."""

import pytest
from pyspark.sql import functions as F

from icecdc_core.session import spark as row_counts
from icecdc_core.session.spark import RowCount, settings_unless_set, tuned_for_many_groups

CAPACITY = "spark.sql.codegen.aggregate.fastHashMap.capacityBit"


@pytest.mark.usefixtures("compiled_plans")
def it_leaves_a_setting_of_the_session_and_groups_right_beyond_its_room(spark):
    with settings_unless_set(spark, {CAPACITY: "10"}):
        with tuned_for_many_groups(spark):
            rows = spark.range(0, 40_000, 1, 2).selectExpr("id % 20000 AS id", "id AS value").repartition(1, "id")
            sums = rows.groupBy("id").sum("value").collect()
        assert spark.conf.get(CAPACITY) == "10"
    assert sorted(tuple(row) for row in sums) == [(n, 2 * n + 20_000) for n in range(20_000)]


def jobs(spark):
    """How many jobs the session has run; each adds a stage, and stages are numbered."""
    return spark.sparkContext._jsc.sc().dagScheduler().nextJobId()


class DescribeRowCount:
    @pytest.mark.parametrize(("condition", "expected"), [(None, 10), ("id < 3", 3), ("id > 99", 0)])
    def it_is_known_after_an_action_without_another_job(self, spark, condition, expected):
        count = RowCount(spark.range(10), condition and F.expr(condition))
        read = len(count.rows.collect())
        before = jobs(spark)
        assert (read, count.value(), jobs(spark) - before) == (10, expected, 0)

    def it_counts_again_when_adaptive_execution_drops_what_was_observed(self, spark):
        count = RowCount(spark.range(0, 100, 1, 4).where("id % 2 = 0"), F.col("id") < 20)
        nothing = spark.range(0, 100, 1, 4).where("id < 0 OR rand(1) > 2").repartition("id").hint("merge")
        joined = count.rows.repartition("id").join(nothing, "id")
        assert (joined.collect(), count.value()) == ([], 10)

    def it_is_zero_for_a_frame_that_spark_sees_to_be_empty(self, spark):
        count = RowCount(spark.range(10).where("1 = 2"))
        assert (count.rows.collect(), count.value()) == ([], 0)

    def it_stops_waiting_for_a_report_that_does_not_come(self, spark, monkeypatch):
        monkeypatch.setattr(row_counts, "REPORT_SECONDS", 0.0)
        assert RowCount(spark.range(10)).value() == 10
