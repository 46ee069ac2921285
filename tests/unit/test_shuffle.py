"""Rows of one identifier meet in one partition; what cannot identify a row is refused."""

import pytest
from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.errors import IdentifierColumnsError
from icecdc_core.session.spark import settings_unless_set
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates

CHANGE_COLUMNS = "_change_type string, _change_ordinal int, _commit_snapshot_id long"


class DescribeShuffleByIdentifiers:
    def it_brings_rows_of_one_identifier_into_one_partition_takes_nulls_as_equal_and_changes_no_row(self, spark):
        # Each identifier four times, spread over all partitions of the source.
        identifiers = [(number, text) for number in (None, 1, 2, 3, 4) for text in (None, "", "a", "b")]
        rows = [(number, text, copy, [1.5]) for copy in range(4) for number, text in identifiers]
        source = spark.createDataFrame(rows, "number int, `te.xt` string, copy int, c array<double>")
        shuffled = shuffle_by_identifiers(source.repartition(4, "copy"), ["number", "te.xt"])
        found = shuffled.select("*", F.spark_partition_id()).collect()
        assert (shuffled.schema, len({(row[:2], row[4]) for row in found})) == (source.schema, len(identifiers))
        assert sorted((row[:4] for row in found), key=repr) == sorted(rows, key=repr)

    @pytest.mark.parametrize("identifier_columns", [["price"], ["time_hour", "carrier", "flight"]], ids=" ".join)
    @pytest.mark.parametrize("on_duplicate", ["fail", "last"])
    def it_is_the_only_exchange_of_all_three_transforms(self, spark, identifier_columns, on_duplicate):
        own = "hash(id) AS flight", "concat('carrier ', id % 3) AS carrier", "timestamp_seconds(id) AS time_hour"
        kind = "if(id % 2 = 0, 'INSERT', 'DELETE') AS _change_type"
        others = "cast(id AS decimal(10,2)) AS price", kind, "0 AS _change_ordinal", "id AS _commit_snapshot_id"
        # In several partitions, in no order that Spark knows of.
        changes = spark.range(0, 40, 1, 4).selectExpr(*own, *others).repartition(3)
        kept = changes.transform(shuffle_by_identifiers, identifier_columns).transform(remove_carryovers)
        plan = merge_updates(kept, identifier_columns, on_duplicate)._jdf.queryExecution().executedPlan().toString()
        assert plan.split("Exchange RoundRobinPartitioning")[0].count("Exchange") == 1


REFUSED = {
    "needed, as a list": [[], "id", None, [1], 5],
    "missing": [["nope"], ["id", "nope"], ["s.x"], ["`id`"]],
    "given twice": [["id", "id"], ["id", "ID"]],
    "nested": [["s"], ["a"], ["m"]],
    "table's own": [["_change_type"], ["id", "_change_ordinal"], ["_commit_snapshot_id"]],
}


@pytest.fixture(scope="module")
def guarded(spark):
    """A frame without rows, whose columns are good, bad or reserved as identifiers."""
    return spark.createDataFrame([], f"id int, s struct<x:int>, a array<int>, m map<int,int>, {CHANGE_COLUMNS}")


@pytest.mark.parametrize("transform", [shuffle_by_identifiers, merge_updates])
class DescribeIdentifierColumns:
    @pytest.mark.parametrize(("message", "several"), REFUSED.items())
    def it_refuses_what_cannot_identify_a_row(self, guarded, transform, message, several):
        for columns in several:
            with pytest.raises(IdentifierColumnsError, match=f"{message}.*'id int'.*identifier_columns"):
                # One that can be read only once is a list like any other.
                transform(guarded, iter(columns) if isinstance(columns, list) else columns)

    def it_minds_upper_and_lower_case_where_spark_does(self, spark, guarded, transform):
        conf = {"spark.sql.caseSensitive": "true"}
        with settings_unless_set(spark, conf), pytest.raises(IdentifierColumnsError, match="missing"):
            transform(guarded, ["ID"])
