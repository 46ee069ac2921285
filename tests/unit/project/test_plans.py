"""What Spark is going to do: all changes of a range cross the network once."""

import pytest

from icecdc_core.carryover import remove_carryovers
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates


def changes(spark):
    """Changes that lie in several partitions, in no order that Spark knows of."""
    own = "hash(id) AS flight", "concat('carrier ', id % 3) AS carrier", "timestamp_seconds(id) AS time_hour"
    kind = "if(id % 2 = 0, 'INSERT', 'DELETE') AS _change_type"
    others = "cast(id AS decimal(10,2)) AS price", kind, "0 AS _change_ordinal", "id AS _commit_snapshot_id"
    return spark.range(0, 40, 1, 4).selectExpr(*own, *others).repartition(3)


def plan(frame):
    """The physical plan before it runs, from which the repartition of ``changes`` itself is cut off."""
    text = frame._jdf.queryExecution().executedPlan().toString()
    assert "AdaptiveSparkPlan isFinalPlan=false" in text
    return text.split("Exchange RoundRobinPartitioning")[0]


class DescribePlans:
    @pytest.mark.parametrize("identifier_columns", [["price"], ["time_hour", "carrier", "flight"]], ids=" ".join)
    @pytest.mark.parametrize("on_duplicate", ["fail", "last"])
    def it_needs_one_exchange_for_all_three_transforms(self, spark, identifier_columns, on_duplicate):
        kept = changes(spark).transform(shuffle_by_identifiers, identifier_columns).transform(remove_carryovers)
        assert plan(merge_updates(kept, identifier_columns, on_duplicate)).count("Exchange") == 1
