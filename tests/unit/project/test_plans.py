"""What Spark is going to do: all changes of a range cross the network once."""

import pytest
from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates


def changes(spark, **more):
    """Changes that lie in several partitions, in no order that Spark knows of."""
    number = F.col("id")
    return (
        spark.range(0, 40, 1, 4)
        .select(
            F.hash("id").alias("flight"),
            F.concat(F.lit("carrier "), number % 3).alias("carrier"),
            (number * 1.5).alias("delay"),
            F.timestamp_seconds(number).alias("time_hour"),
            number.cast("decimal(10,2)").alias("price"),
            F.encode(number.cast("string"), "UTF-8").alias("digest"),
            *(value.alias(name) for name, value in more.items()),
            F.when(number % 2 == 0, F.lit("INSERT")).otherwise(F.lit("DELETE")).alias("_change_type"),
            F.lit(0).alias("_change_ordinal"),
            number.alias("_commit_snapshot_id"),
        )
        .repartition(3)
    )


def plan(frame):
    """The physical plan before it runs, from which the repartition of ``changes`` itself is cut off."""
    text = frame._jdf.queryExecution().executedPlan().toString()
    assert "AdaptiveSparkPlan isFinalPlan=false" in text
    return text.split("Exchange RoundRobinPartitioning")[0]


def executed_plan(frame):
    """The plan as adaptive execution left it."""
    frame.collect()
    final = frame._jdf.queryExecution().executedPlan().toString().split("== Initial Plan ==")[0]
    return final.split("Exchange RoundRobinPartitioning")[0]


IDENTIFIERS = [["flight"], ["time_hour", "carrier", "flight"], ["price"], ["digest"]]


class DescribePlans:
    @pytest.mark.parametrize("identifier_columns", IDENTIFIERS, ids=" ".join)
    @pytest.mark.parametrize("on_duplicate", ["fail", "last"])
    def it_needs_one_exchange_for_all_three_transforms(self, spark, identifier_columns, on_duplicate):
        kept = changes(spark).transform(shuffle_by_identifiers, identifier_columns).transform(remove_carryovers)
        assert plan(merge_updates(kept, identifier_columns, on_duplicate)).count("Exchange") == 1

    def it_needs_no_other_when_it_runs(self, spark):
        kept = changes(spark).transform(shuffle_by_identifiers, ["flight"]).transform(remove_carryovers)
        assert executed_plan(merge_updates(kept, ["flight"])).count("Exchange") == 1

    def it_needs_no_other_for_maps_and_nested_floats(self, spark):
        nested = changes(spark, map=F.create_map("id", "id"), floats=F.array(F.lit(1.5)))
        kept = nested.transform(shuffle_by_identifiers, ["carrier", "flight"]).transform(remove_carryovers)
        text = plan(merge_updates(kept, ["carrier", "flight"]))
        assert (text.count("Exchange"), text.count("Window [")) == (1, 1)

    @pytest.mark.parametrize("transform", [remove_carryovers, lambda frame: merge_updates(frame, ["flight"])])
    def it_needs_one_exchange_for_one_transform_alone(self, spark, transform):
        assert plan(transform(changes(spark))).count("Exchange") == 1

    def it_groups_plain_columns_by_hash(self, spark):
        text = plan(remove_carryovers(changes(spark)))
        assert ("HashAggregate" in text, "SortAggregate" in text, "ObjectHashAggregate" in text) == (True, False, False)
