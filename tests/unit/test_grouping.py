"""Settings for grouping hold while something is computed, and only where the session has none of its own."""

from __future__ import annotations

from icecdc_core.grouping import many_groups

PARTIAL_ONLY = "spark.sql.codegen.aggregate.map.twolevel.partialOnly"
CAPACITY = "spark.sql.codegen.aggregate.fastHashMap.capacityBit"


def settings(spark):
    return spark.conf.get(PARTIAL_ONLY, None), spark.conf.get(CAPACITY, None)


class DescribeManyGroups:
    def it_sets_what_helps_and_takes_it_back(self, spark):
        with many_groups(spark):
            inside = settings(spark)
        assert (inside, settings(spark)) == (("false", "20"), (None, None))

    def it_keeps_the_settings_of_the_session(self, spark):
        spark.conf.set(CAPACITY, "12")
        try:
            with many_groups(spark):
                inside = settings(spark)
            after = settings(spark)
        finally:
            spark.conf.unset(CAPACITY)
        assert (inside, after) == (("false", "12"), (None, "12"))

    def it_groups_right_beyond_the_room_of_the_fast_map(self, spark):
        spark.conf.set(CAPACITY, "10")
        try:
            with many_groups(spark):
                rows = spark.range(0, 40_000, 1, 2).selectExpr("id % 20000 AS id", "id AS value").repartition(1, "id")
                sums = rows.groupBy("id").sum("value").collect()
        finally:
            spark.conf.unset(CAPACITY)
        assert sorted(tuple(row) for row in sums) == [(n, 2 * n + 20_000) for n in range(20_000)]
