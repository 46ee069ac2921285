"""The columns, and the fields in them, that a row filter looks at."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from icecdc_core.table.select import condition_columns

SCHEMA = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("b.c", T.StringType()),
        T.StructField("s", T.StructType([T.StructField("x", T.LongType())])),
        T.StructField('q`"\\uo%', T.DateType()),
        T.StructField("seen", T.TimestampType()),
    ]
)


class DescribeConditionColumns:
    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("id > 5", {"id"}),
            ("ID > 5", {"id"}),
            ("`b.c` = 'id' and s.x in (1, 2, 3)", {"b.c", "s"}),
            ("`q``\"\\uo%` > '2020-01-01' or id is null", {'q`"\\uo%', "id"}),
            ("exists(array(id, 1), v -> v > s.x)", {"id", "s"}),
            ("case when id = 1 then `b.c` like '%x' else true end", {"id", "b.c"}),
            ("true", set()),
        ],
    )
    def it_finds_the_columns_a_row_filter_looks_at(self, spark, condition, expected):
        assert condition_columns(spark, SCHEMA, condition).names == expected

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("id > 5", {"id"}),
            ("s.x > 1", {"s.x"}),
            ("cast(s AS string) = '{1}'", {"s"}),
            ("to_json(struct(s.*)) = '{}'", {"s.x"}),
        ],
    )
    def it_finds_the_fields_within_them(self, spark, condition, expected):
        assert condition_columns(spark, SCHEMA, condition).computed_from == expected

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("hour(seen) < 12", "UTC"),
            ("seen >= '2026-01-01'", "UTC"),
            ("seen >= timestamp '2026-01-01'", "UTC"),
            ("date(seen) = date '2026-01-01'", "UTC"),
            ("from_unixtime(id) > '2026'", "UTC"),
            ("hour(timestamp_seconds(id)) < 12", "UTC"),
            ("date(timestamp_seconds(id)) > date '2026-01-01'", "UTC"),
            ("seen IS NOT NULL AND id > 5", ""),
            ("`q``\"\\uo%` > '2020-01-01'", ""),
            ("cast(id AS string) = '5'", ""),
        ],
    )
    def it_finds_the_time_zone_that_the_result_depends_on(self, spark, condition, expected):
        assert condition_columns(spark, SCHEMA, condition).time_zone == expected
