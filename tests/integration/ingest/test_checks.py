"""Checks: a batch that fails one is not published, or only without the records that fail it."""

import pytest

from icecdc_core.errors import ConfigError, FailedCheckError
from icecdc_core.ingest import ingest
from icecdc_core.ingest.checks import check_queries
from tests.checks.ingested import reasons, rows

POSITIVE = {"positive": "SELECT * FROM batch WHERE v < 0"}
UNIQUE = {"unique": "SELECT id FROM staged GROUP BY id HAVING count(*) > 1"}
CREATE = "CREATE TABLE {t} (id BIGINT, v BIGINT) USING iceberg"


class DescribeHeldBatches:
    def it_is_written_once_its_cause_is_mended_and_the_other_tables_go_on(self, spark, make_ingest, topic, name):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{name}")
        good, bad = (f"lake.{name}.{each}" for each in ("good", "bad"))
        for table in (good, bad):
            spark.sql(f"CREATE TABLE {table} (id BIGINT, v BIGINT) USING iceberg")
        spark.sql(f"INSERT INTO {bad} VALUES (7, 0)")
        config = make_ingest(route_by="field", route_field="t", checks=UNIQUE)
        topic.send(*({"id": n, "v": n, "t": t} for n in (7, 8) for t in ("good", "bad")), {"id": "x", "t": "bad"})
        held = [ingest(spark, config) for _ in range(2)]
        assert [(report.state, report.behind, report.dead_letters) for report in held] == [
            ("partial", [f"`lake`.`{name}`.`bad`"], 0)
        ] * 2
        assert 'The check unique finds rows: {"id":7}' in held[0].tables[f"`lake`.`{name}`.`bad`"]["error"]
        assert (rows(spark, good), rows(spark, bad)) == ([(7, 7), (8, 8)], [(7, 0)])
        spark.sql(f"DELETE FROM {bad}")
        mended = ingest(spark, config)
        assert (mended.state, mended.rows_written, mended.dead_letters) == ("ok", 2, 1)
        assert (rows(spark, good), rows(spark, bad)) == ([(7, 7), (8, 8)],) * 2

    def it_ends_the_run_of_its_only_table_with_the_rows_and_without_long_values(self, spark, sql, make_ingest, topic):
        sql("CREATE TABLE {t} (id BIGINT, v BIGINT, s STRING) USING iceberg")
        topic.send(*({"id": n, "v": -1, "s": f"password=hidden{n} " + "long" * 1000} for n in range(30)))
        with pytest.raises(FailedCheckError, match="The check positive finds rows") as failed:
            ingest(spark, make_ingest(checks=POSITIVE))
        text = str(failed.value)
        assert (failed.value.state, text.count('"v":-1')) == ("data", 10)
        assert (len(text) < 2200, "hidden" in text, "longlong" in text) == (True, False, True)


class DescribeRecordsThatFailAnUpsertsCheck:
    def it_does_not_hide_an_older_record_of_the_same_key(self, spark, sql, make_ingest, static):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (3, 3), (4, 4)")
        config = make_ingest(
            mode="upsert", identifier_columns="id", op_field="op", checks=POSITIVE, on_failed_check="dead_letter"
        )
        values = [(1, 1, "u"), (1, -1, "u"), (2, -2, "u"), (3, -3, "u"), (4, 0, "d"), ("x", 0, "u")]
        entry = static(config).send(*({"id": key, "v": value, "op": op} for key, value, op in values))
        assert rows(spark, config.table) == [(1, 1), (3, 3)]
        expected = [(n, "check positive") for n in (1, 2, 3)] + [(5, "field id: 'x' is not of type bigint")]
        assert (reasons(spark, config), entry.dead_letters) == (expected, 4)
        assert (entry.tables[0].rows, entry.tables[0].deletes) == (1, 1)


class DescribeRecordsThatFailACheck:
    def it_is_a_dead_letter_once_and_the_others_are_written(self, spark, sql, make_ingest, topic, monkeypatch):
        sql(CREATE)
        joined = "SELECT batch.* FROM batch JOIN staged USING (id) WHERE staged.v = 50"
        config = make_ingest(checks={**POSITIVE, "joined": joined}, on_failed_check="dead_letter")
        topic.send(*({"id": n, "v": v} for n, v in enumerate([5, -1, 50, 6, -2])), b"no json", partition=0)
        monkeypatch.setattr("icecdc_core.ingest.table.publish", lambda *given: exit("killed"))
        with pytest.raises(SystemExit):
            ingest(spark, config)
        monkeypatch.undo()
        assert (rows(spark, config.table), len(reasons(spark, config))) == ([], 4)
        report = ingest(spark, config)
        assert (report.state, report.rows_written, rows(spark, config.table)) == ("ok", 2, [(0, 5), (3, 6)])
        found = [(offset, reason[:14]) for offset, reason in reasons(spark, config)]
        assert found == [(1, "check positive"), (2, "check joined"), (4, "check positive"), (5, "not one JSON o")]

    def it_takes_all_records_of_the_batch_if_the_check_names_none(self, spark, sql, make_ingest, static):
        sql(CREATE)
        count = {"enough": "SELECT 1 FROM batch HAVING count(*) < 2"}
        topic = static(make_ingest(checks=count, on_failed_check="dead_letter"))
        entries = [topic.send({"id": 1}, b"no json"), topic.send({"id": 2}, {"id": 3}), topic.send(b"no json")]
        config = topic.batches.config
        assert (rows(spark, config.table), [entry.dead_letters for entry in entries]) == (
            [(2, None), (3, None)],
            [2, 0, 1],
        )
        assert [reason[:12] for _, reason in reasons(spark, config)] == ["check enough"] + ["not one JSON"] * 2


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("DELETE FROM batch", "is no query"),
        ("SELECT 1) x, (SELECT 2", "is no query"),
        ("SELECT 1; SELECT 2", "is no query"),
        ("WITH a AS (SELECT * FROM batch) SELECT * FROM a WHERE id IN (SELECT id FROM lake.ns.t)", "reads lake, ns, t"),
    ],
)
def it_refuses_a_check_that_is_no_query_over_the_two_views(spark, make_ingest, query, problem):
    with pytest.raises(ConfigError, match=rf"The check mine {problem}.*\[checks=.*Remedy: write one query"):
        check_queries(spark, make_ingest(checks={"mine": query}))


def it_leaves_the_table_behind_if_a_check_names_a_column_that_it_lacks(spark, sql, make_ingest, static):
    sql(CREATE)
    config = make_ingest(checks={"mine": "SELECT nope FROM batch"}, on_failed_check="dead_letter")
    entry = static(config).send({"id": 1}, error=ConfigError)
    assert "The check mine cannot be run" in entry.tables[0].error
    assert rows(spark, config.table) == []
