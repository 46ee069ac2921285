"""Which values hide the promotions that other values need, and the schema that finds them; no Spark session."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from icecdc_core.ingest.inference import TypeConflicts, variant_schema

INT, LONG, STRING = T.IntegerType(), T.LongType(), T.StringType()
DECIMAL = T.DecimalType(5, 2)


def struct(**kinds):
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


NESTED = struct(a=INT, s=struct(c=INT), l=T.ArrayType(struct(x=INT)), m=T.MapType(STRING, struct(x=INT)))


class DescribeExist:
    @pytest.mark.parametrize(
        ("column", "seen", "expected"),
        [
            (INT, LONG, False),
            (INT, T.DoubleType(), True),
            (INT, STRING, True),
            (LONG, STRING, False),
            (T.FloatType(), LONG, False),
            (T.FloatType(), T.BooleanType(), True),
            (DECIMAL, LONG, False),
            (DECIMAL, T.DecimalType(9, 3), False),
            (DECIMAL, T.DoubleType(), True),
            (DECIMAL, STRING, True),
            (struct(x=INT), STRING, True),
            (struct(x=INT), struct(y=STRING), False),
            (T.ArrayType(INT), T.ArrayType(STRING), True),
            (T.MapType(STRING, INT), struct(k=STRING), True),
        ],
        ids=str,
    )
    def it_compares_the_kinds_of_types(self, column, seen, expected):
        assert TypeConflicts(struct(x=column), False).exist(struct(x=seen)) == expected

    def it_ignores_guessed_types_of_decimal_columns(self):
        assert not TypeConflicts(struct(x=DECIMAL), False).exist(variant_schema("OBJECT<x: STRING>"))

    @pytest.mark.parametrize(("any_case", "expected"), [(False, False), (True, True)])
    def it_matches_names_by_the_case_rule(self, any_case, expected):
        assert TypeConflicts(struct(x=INT), any_case).exist(struct(X=STRING)) == expected


class DescribeWithout:
    def it_uses_the_type_of_the_column_for_a_conflicting_writer(self):
        conflicts = TypeConflicts(struct(x=DECIMAL), False)
        kinds = [T.DecimalType(9, 2), STRING, T.DecimalType(9, 3)]
        assert conflicts.merge_without_conflicts([struct(x=kind, y=INT) for kind in kinds]) == struct(
            x=T.DecimalType(9, 2), y=INT
        )


class DescribeSpellings:
    SEEN = variant_schema(
        "OBJECT<A: STRING, L: ARRAY<OBJECT<X: STRING, y: BIGINT>>, S: OBJECT<C: STRING>, "
        "m: OBJECT<j: OBJECT<x: BIGINT>, k: OBJECT<X: STRING>>, s: STRING>"
    )

    def it_reads_columns_by_the_names_in_the_records(self):
        assert TypeConflicts(NESTED, True).lenient_schema(self.SEEN).simpleString() == (
            "struct<A:bigint,L:array<struct<X:bigint>>,S:struct<C:bigint>,"
            "m:map<string,struct<X:bigint,x:bigint>>,s:struct<c:bigint>>"
        )

    def it_keeps_names_that_only_the_left_out_records_have(self):
        conflicts = TypeConflicts(NESTED, True)
        left = variant_schema("OBJECT<A: BIGINT, m: OBJECT<j: OBJECT<x: BIGINT>>>")
        assert conflicts.with_spellings(left, self.SEEN).simpleString() == (
            "struct<A:bigint,m:struct<j:struct<x:bigint,X:int>>,L:array<struct<X:int>>,S:struct<C:int>,s:struct<c:int>>"
        )
