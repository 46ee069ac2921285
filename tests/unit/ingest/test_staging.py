"""Which records are staged, and which become dead letters; the snapshots and the dead letter table are recorders."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

from icecdc_core.errors import ColumnNotFoundError
from icecdc_core.ingest import table as staging
from icecdc_core.ingest.commit_log import TableEntry
from icecdc_core.ingest.decoding import decode_records
from icecdc_core.ingest.publish import StagedSnapshot
from icecdc_core.ingest.rows import parse_rows
from icecdc_core.ingest.table import DELETE_IN_APPEND, Staging
from tests import kafka_records

SCHEMA = StructType().add("id", "long").add("x", "double")
NOT_A_NUMBER = "field id: 'one' is not of type bigint"


class DeadLetters:
    """Keeps the reasons, by offset."""

    def __init__(self):
        self.reasons = {}

    def write(self, rejected, table):
        rows = rejected.select("offset", "problem").collect()
        self.reasons |= {row.offset: row.problem for row in rows}
        return len(rows)


@pytest.fixture
def stage(spark, monkeypatch):
    """Make a `Staging`, and the decoded records of values; `staged` has what each staged snapshot would have."""
    monkeypatch.setattr(staging, "identifiers", lambda spark, table, config: config.identifier_columns)
    cached = []

    def run(*values, **given):
        config = kafka_records.settings(
            **{
                "mode": "append",
                "metadata_columns": [],
                "sort_columns": [],
                "ordering_column": "",
                "target_file_bytes": 0,
                "distribution": "table",
                **given,
            }
        )
        staged, merged = [], []

        def snapshot(spark, name, table, properties, write):
            write(properties)
            return StagedSnapshot(TableEntry(name, snapshot_id=len(staged), rows=len(staged[-1])), None, properties)

        def keep(frame, *given):
            staged.append([tuple(row) for row in frame.collect()])

        monkeypatch.setattr(staging, "stage", snapshot)
        monkeypatch.setattr(staging, "append", keep)

        def merge(last, name, columns, *given):
            keep(last.selectExpr("op", "row.*"))
            merged.append([tuple(row) for row in last.select("op", columns["id"], "row.id").collect()])

        monkeypatch.setattr(staging, "merge_rows", merge)
        source = kafka_records.records(spark, [(None, value) for value in values])
        decoded = decode_records(source, config).persist()
        cached.append(decoded)
        target = Staging(config, DeadLetters(), "t", None, SCHEMA, {"a": "b"})
        return SimpleNamespace(
            staging=target,
            decoded=decoded,
            rows=lambda: parse_rows(decoded, SCHEMA, config),
            staged=staged,
            merged=merged,
            reasons=target.dead_letters.reasons,
        )

    yield run
    for frame in cached:
        frame.unpersist()


class DescribeAppends:
    def it_appends_what_fits_and_keeps_the_reasons_of_the_rest(self, stage):
        given = stage({"id": 1, "op": "c"}, {"id": "one", "op": "c"}, {"id": 2, "op": "d"}, op_field="op")
        actual, dead_letters = given.staging.append(given.rows())
        assert given.staged == [[(1, None)]]
        assert given.reasons == {1: NOT_A_NUMBER, 2: DELETE_IN_APPEND}
        assert (actual.entry.rows, dead_letters, actual.properties) == (1, 2, {"a": "b"})

    def it_adds_the_metadata_and_sorts(self, stage):
        given = stage({"id": 3}, {"id": 1}, {"id": 2}, metadata_columns=["offset", "topic"], sort_columns=["id"])
        given.staging.append(given.rows())
        assert given.staged == [[(1, None, 1, "topic"), (2, None, 2, "topic"), (3, None, 0, "topic")]]

    def it_parses_records_again_only_to_find_the_reasons(self, stage):
        given = stage({"id": 1, "x": 5}, {"id": "one"})
        actual, dead_letters = given.staging.append_fast(given.decoded)
        assert (given.staged, given.reasons) == ([[(1, 5.0)]], {1: NOT_A_NUMBER})
        assert (actual.entry.rows, dead_letters) == (1, 1)

    def it_stages_again_if_the_slower_parse_accepts_more(self, stage):
        given = stage({"id": 1, "x": "Infinity"}, {"id": "one"}, {"id": 2})
        actual, _ = given.staging.append_fast(given.decoded)
        assert given.staged == [[(2, None)], [(1, float("inf")), (2, None)]]
        assert (given.reasons, actual.entry.snapshot_id) == ({1: NOT_A_NUMBER}, 2)


class DescribeUpserts:
    def upsert(self, stage, *values, **given):
        return stage(*values, mode="upsert", op_field="op", identifier_columns=["id"], **given)

    def it_merges_the_last_record_of_each_identifier(self, stage):
        given = self.upsert(stage, {"id": 1, "x": 1, "op": "u"}, {"id": 1, "x": 2, "op": "u"}, {"id": 2, "op": "d"})
        actual, dead_letters = given.staging.upsert(given.rows())
        assert [sorted(rows) for rows in given.staged] == [[("delete", 2, None), ("upsert", 1, 2.0)]]
        assert (actual.entry.rows, actual.entry.deletes, dead_letters) == (1, 1, 0)

    def it_rejects_records_without_an_identifier(self, stage):
        given = self.upsert(stage, {"id": 1, "op": "u"}, {"x": 5, "op": "u"}, {"id": "one", "op": "u"})
        actual, dead_letters = given.staging.upsert(given.rows())
        assert (actual.entry.rows, dead_letters, sorted(given.reasons)) == (1, 2, [1, 2])
        assert given.reasons[2] == NOT_A_NUMBER

    @pytest.mark.parametrize("column_case", ["sensitive", "lower"])
    def it_deletes_the_old_row_of_an_update_with_another_identifier(self, stage, column_case):
        def update(before, after):
            return {"op": "u", "before": before, "after": after}

        given = stage(
            update({"id": 1}, {"id": 2, "x": 1}),
            {"op": "c", "after": {"id": 1, "x": 5}},
            update({"id": 3}, {"id": 4, "x": 1}),
            update({"id": 5}, {"id": 5, "x": 1}),
            update(None, {"id": 6, "x": 1}),
            update({"x": 1}, {"id": 7, "x": 1}),
            update({"id": 8}, {"id": "one"}),
            update({"id": 9}, {"id": 10, "x": None}),
            mode="upsert", format="debezium_json", identifier_columns=["id"], ordering_column="x",
            column_case=column_case,
        )  # fmt: skip
        actual, _ = given.staging.upsert(given.rows())
        expected = [("delete", 3, 4), *(("upsert", number, number) for number in (1, 2, 4, 5, 6, 7))]
        assert [sorted(rows) for rows in given.merged] == [expected]
        no_order = "field x, the ordering column, is missing or null"
        assert (actual.entry.rows, actual.entry.deletes, given.reasons) == (6, 1, {6: NOT_A_NUMBER, 7: no_order})

    def it_refuses_an_ordering_column_that_the_table_lacks(self, stage):
        given = self.upsert(stage, {"id": 1, "op": "u"}, ordering_column="ts")
        with pytest.raises(ColumnNotFoundError, match="ordering column"):
            given.staging.upsert(given.rows())
        assert given.staged == []
