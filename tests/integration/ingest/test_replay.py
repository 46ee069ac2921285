"""Dead letters that go through the ingest again: each once, wherever a replay died, and what fails again stays."""

from contextlib import suppress
from functools import partial

import pytest

from icecdc_core.errors import ConcurrentIngestError, ConfigError
from icecdc_core.ingest import ingest
from icecdc_core.ingest.batch import Batches
from icecdc_core.ingest.replay import ClaimedDeadLetters
from tests.checks.ingested import at_once, dead_letters, reasons, rows

CREATE = "CREATE TABLE {t} (id BIGINT, v INT) USING iceberg"
TOO_LONG = 5_000_000_000


def replay(spark, config):
    return ingest(spark, config.replace(replay_dead_letters=True))


@pytest.fixture
def config(sql, make_ingest, topic):
    """An ingest of a topic of which one record fits, two fit a wider column, and one is no JSON."""
    sql(CREATE)
    topic.send({"id": 1, "v": 1}, {"id": 2, "v": TOO_LONG}, b"no json", {"id": 3, "v": TOO_LONG}, partition=0)
    return make_ingest()


@pytest.fixture
def widened(spark, sql, config):
    """That ingest, whose column has become wider after its run."""
    ingest(spark, config)
    sql("ALTER TABLE {t} ALTER COLUMN v TYPE BIGINT")
    return config


class DescribeReplays:
    def it_writes_what_a_wider_column_holds_now_and_keeps_the_rest_with_its_new_reason(self, spark, sql, config):
        assert ingest(spark, config).dead_letters == 3
        still_bad = replay(spark, config)
        assert (still_bad.records, still_bad.rows_written, still_bad.dead_letters) == (3, 0, 3)
        sql("ALTER TABLE {t} ALTER COLUMN v TYPE BIGINT")
        offsets = ingest(spark, config).offsets
        report = replay(spark, config)
        assert (report.state, report.records, report.rows_written, report.dead_letters) == ("ok", 3, 2, 1)
        assert [(reason[:12], count) for reason, count in report.failed_again.items()] == [("not one JSON", 1)]
        assert rows(spark, config.table) == [(1, 1), (2, TOO_LONG), (3, TOO_LONG)]
        assert [offset for offset, _ in reasons(spark, config)] == [2]
        assert (ingest(spark, config).offsets, replay(spark, config).rows_written) == (offsets, 0)

    def it_routes_what_had_no_table_to_each_that_takes_it_now(self, spark, make_ingest, topic, name):
        one, other = f"lake.{name}.one", f"lake.{name}.other"
        given = {"route_by": "regex", "route_field": "kind", "auto_create": True}
        config = make_ingest(**given, routes={one: "x"})
        topic.send({"id": 1, "kind": "x"}, {"id": 2, "kind": "y"}, {"id": 3}, b"no json", partition=0)
        ingest(spark, config)
        report = replay(spark, config.replace(routes={one: "x|y", other: "y"}))
        assert (report.rows_written, report.dead_letters) == (2, 2)
        assert (rows(spark, one), rows(spark, other)) == ([(1, "x"), (2, "y")], [(2, "y")])
        assert [offset for offset, _ in reasons(spark, config)] == [2, 3]

    def it_writes_only_what_where_does_not_drop(self, spark, make_ingest, topic):
        config = make_ingest(auto_create=True, where="CAST(v AS INT) > 1")
        topic.send({"id": 1, "v": "2"}, {"id": 2, "v": "x"}, {"id": 3, "v": "y"}, partition=0)
        assert ingest(spark, config).dead_letters == 2
        assert replay(spark, config.replace(where="v = 'x'")).rows_written == 1
        assert (rows(spark, config.table), [offset for offset, _ in reasons(spark, config)]) == (
            [(1, "2"), (2, "x")],
            [2],
        )

    def it_keeps_the_newer_row_of_an_upsert_and_refuses_one_without_an_order(self, spark, sql, make_ingest, topic):
        sql(CREATE)
        given = {"mode": "upsert", "identifier_columns": "id", "metadata_columns": "timestamp"}
        sql("ALTER TABLE {t} ADD COLUMN _kafka_timestamp TIMESTAMP")
        config = make_ingest(**given, ordering_column="_kafka_timestamp")
        topic.send({"id": 1, "v": TOO_LONG}, {"id": 2, "v": TOO_LONG}, partition=0, timestamp=1_000_000)
        topic.send({"id": 1, "v": 7}, partition=0, timestamp=2_000_000)
        ingest(spark, config)
        sql("ALTER TABLE {t} ALTER COLUMN v TYPE BIGINT")
        with pytest.raises(ConfigError, match=r"Dead letters are older .*ordering_column"):
            replay(spark, config.replace(ordering_column=""))
        assert len(reasons(spark, config)) == 2
        replay(spark, config)
        assert sorted(row[:2] for row in rows(spark, config.table)) == [(1, 7), (2, TOO_LONG)]
        assert reasons(spark, config) == []


@pytest.mark.parametrize("step", ["rewrite", "write_each", "write", "publish", "remove"])
def it_writes_each_once_if_a_replay_dies_at_any_step(spark, widened, monkeypatch, step):
    owner = {"write_each": Batches, "publish": None}.get(step, ClaimedDeadLetters)
    die = lambda *given: exit("killed")  # noqa: E731
    with monkeypatch.context() as cut:
        if owner:
            cut.setattr(owner, step, die)
        else:
            cut.setattr("icecdc_core.ingest.table.publish", die)
        with pytest.raises(SystemExit):
            replay(spark, widened)
    replay(spark, widened)
    assert rows(spark, widened.table) == [(1, 1), (2, TOO_LONG), (3, TOO_LONG)]
    assert [offset for offset, _ in reasons(spark, widened)] == [2]


def it_writes_each_once_if_two_replays_and_the_job_run_at_once(spark, widened, topic):
    topic.send(*({"id": n, "v": n} for n in range(10, 20)))

    def run(**given):
        with suppress(ConcurrentIngestError):  # a replay that another one overtook
            ingest(spark.newSession(), widened.replace(**given))

    at_once(*[partial(run, replay_dead_letters=True)] * 2, run)
    replay(spark, widened)
    assert rows(spark, widened.table) == [(1, 1), (2, TOO_LONG), (3, TOO_LONG), *((n, n) for n in range(10, 20))]
    assert [offset for offset, _ in reasons(spark, widened)] == [2]


def it_does_not_replay_what_the_job_judges_again_after_a_crash(spark, sql, config, monkeypatch):
    with monkeypatch.context() as cut:
        cut.setattr("icecdc_core.ingest.table.publish", lambda *given: exit("killed"))
        with pytest.raises(SystemExit):
            ingest(spark, config)
    assert len(reasons(spark, config)) == 3
    sql("ALTER TABLE {t} ALTER COLUMN v TYPE BIGINT")
    assert (replay(spark, config).rows_written, ingest(spark, config).rows_written) == (0, 3)
    assert (replay(spark, config).rows_written, len(rows(spark, config.table))) == (0, 3)
    kept = [(each.offset, each.run_id == "doubtful") for each in dead_letters(spark, config)]
    assert kept == [(1, True), (2, False), (3, True)]
