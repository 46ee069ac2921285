"""Settings for groups and shuffles apply in the block only, and never replace a setting of the session."""

import re

import pytest
from pyspark import StorageLevel

from icecdc_core.session.spark import shuffle_partitions_for, storage_level_for, tuned_for_many_groups

PARTIAL_ONLY = "spark.sql.codegen.aggregate.map.twolevel.partialOnly"
BATCH = "spark.sql.inMemoryColumnarStorage.batchSize"
INITIAL = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
CAPACITY = "spark.sql.codegen.aggregate.fastHashMap.capacityBit"


def settings(spark):
    return spark.conf.get(PARTIAL_ONLY, None), spark.conf.get(CAPACITY, None)


class DescribeTunedForManyGroups:
    def it_sets_what_helps_and_unsets_it_again_and_keeps_the_settings_of_the_session(self, spark):
        with tuned_for_many_groups(spark):
            inside = settings(spark)
        assert (inside, settings(spark)) == (("false", "20"), (None, None))
        spark.conf.set(CAPACITY, "12")
        try:
            with tuned_for_many_groups(spark):
                inside = settings(spark)
            after = settings(spark)
        finally:
            spark.conf.unset(CAPACITY)
        assert (inside, after) == (("false", "12"), (None, "12"))

    @pytest.mark.usefixtures("compiled_plans")
    def it_groups_right_beyond_the_room_of_the_fast_map(self, spark):
        spark.conf.set(CAPACITY, "10")
        try:
            with tuned_for_many_groups(spark):
                rows = spark.range(0, 40_000, 1, 2).selectExpr("id % 20000 AS id", "id AS value").repartition(1, "id")
                sums = rows.groupBy("id").sum("value").collect()
        finally:
            spark.conf.unset(CAPACITY)
        assert sorted(tuple(row) for row in sums) == [(n, 2 * n + 20_000) for n in range(20_000)]


def it_cuts_a_shuffle_into_as_many_as_the_files_are_worth_and_leaves_small_ones_alone(spark):
    usual = int(spark.conf.get("spark.sql.shuffle.partitions"))
    with shuffle_partitions_for(spark, (usual + 2) * 32 * 1024 * 1024 + 1):
        inside = spark.conf.get(INITIAL, None)
        plan = spark.range(1000).repartition("id")._jdf.queryExecution().executedPlan().toString()
    assert (inside, spark.conf.get(INITIAL, None)) == (str(usual + 3), None)
    assert re.search(rf"hashpartitioning\(id#\w+, {usual + 3}\)", plan)
    with shuffle_partitions_for(spark, 1000):
        assert spark.conf.get(INITIAL, None) is None


def it_keeps_what_fits_in_memory_and_all_else_on_disk_in_small_batches(spark):
    with storage_level_for(spark, 1024**2) as level:
        assert (level, spark.conf.get(BATCH)) == (StorageLevel.MEMORY_AND_DISK, "10000")
    with storage_level_for(spark, 1024**4) as level:
        assert (level, spark.conf.get(BATCH)) == (StorageLevel.DISK_ONLY, "256")
    assert spark.conf.get(BATCH) == "10000"
