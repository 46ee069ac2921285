"""Quoted names are names during a call, and what the session makes of them is its own affair before and after."""

from __future__ import annotations

import inspect
import threading

import pytest
from chispa import assert_df_equality

from icecdc_core.carryover import remove_carryovers
from icecdc_core.columns import literal_names
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates

SETTING = "spark.sql.parser.quotedRegexColumnNames"


@pytest.fixture(params=[False, True], ids=["the same session", "another session"])
def session(spark, request):
    """A session in which backticks quote regular expressions."""
    session = spark.newSession() if request.param else spark
    session.conf.set(SETTING, "true")
    yield session
    assert session.conf.get(SETTING) == "true"
    session.conf.unset(SETTING)


def changes(session):
    rows = [(1, 1, "a", 1.0), (1, 1, "a", 1.0), (2, 1, "b", 2.0), (2, 2, "c", None)]
    kinds = ["DELETE", "INSERT", "DELETE", "INSERT"]
    schema = "`no. (id)` int, `a+b` int, `[x]` string, ```` double, _change_type string, _change_ordinal int"
    return session.createDataFrame([(*row, kind, 0) for row, kind in zip(rows, kinds, strict=True)], schema)


class DescribeTransforms:
    def it_takes_odd_names_literally(self, session):
        source = changes(session)
        shuffled = shuffle_by_identifiers(changes=source, identifier_columns=["no. (id)"])
        actual = merge_updates(remove_carryovers(changes=shuffled), identifier_columns=["no. (id)"])
        expected = session.createDataFrame([(2, 2, "c", None, "INSERT", 0)], source.schema)
        assert_df_equality(actual, expected, ignore_nullable=True)

    def it_shows_its_signature(self):
        actual = [str(inspect.signature(function)) for function in (shuffle_by_identifiers, remove_carryovers)]
        arguments = ["(changes: 'DataFrame', identifier_columns: 'Sequence[str]')", "(changes: 'DataFrame')"]
        assert (actual, "Cancel equal" in remove_carryovers.__doc__) == (
            [f"{own} -> 'DataFrame'" for own in arguments],
            True,
        )


class DescribeLiteralNames:
    def it_restores_the_setting_when_the_last_call_ends(self, session):
        inside, leave = threading.Event(), threading.Event()

        def other():
            with literal_names(session):
                inside.set()
                leave.wait(60)

        thread = threading.Thread(target=other)
        seen = []
        with literal_names(session):
            thread.start()
            inside.wait(60)
            with literal_names(session):
                seen.append(session.conf.get(SETTING))
        seen.append(session.conf.get(SETTING))
        leave.set()
        thread.join()
        assert [*seen, session.conf.get(SETTING)] == ["false", "false", "true"]

    def it_restores_the_setting_after_a_failure(self, session):
        with pytest.raises(ValueError, match="wrong"), literal_names(session):
            raise ValueError("wrong")
        assert session.conf.get(SETTING) == "true"

    def it_leaves_a_session_alone_that_has_it_off(self, spark):
        with literal_names(spark):
            pass
        assert SETTING not in spark.conf.getAll or spark.conf.get(SETTING) == "false"
