"""Which columns a `*` stands for."""

from __future__ import annotations

import pytest

from icecdc_core.table.select import star_includes, without_excepted


class DescribeStarIncludes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("*", True),
            ("f.*", True),
            ("`f`.* EXCEPT (a)", True),
            ("to_json(struct(*))", True),
            ("array(a, *)", True),
            ("* EXCEPT (a)", True),
            ("* EXCEPT (a), struct(*)", True),
            ("* except ( a , T )", False),
            ("* EXCEPT (`t`)", False),
            ("place.*", False),
            ("a * b", False),
            ("(a) * t", False),
            ("regexp_replace(x, '(*a', '')", False),
            ("concat('it''s', ', *')", False),
        ],
    )
    def it_is_so_for_a_star_that_does_not_leave_the_column_out(self, text, expected):
        assert star_includes(text, "t", "f") is expected


class DescribeWithoutExcepted:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("* EXCEPT (t)", "*"),
            ("f.* EXCEPT (a, `T`, b.c)", "f.* EXCEPT (a, b.c)"),
            ("struct(* EXCEPT (`x,t`, t))", "struct(* EXCEPT (`x,t`))"),
            ("* EXCEPT (a)", "* EXCEPT (a)"),
            ("a * b", "a * b"),
        ],
    )
    def it_names_no_column_that_spark_does_not_know(self, text, expected):
        assert without_excepted(text, ["t"]) == expected

    def it_changes_nothing_in_a_table_that_spark_can_read(self):
        assert without_excepted("* EXCEPT(a)", []) == "* EXCEPT(a)"
