"""The tables that records may go to, before any record is read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from icecdc_core.errors import TableNotFoundError
from icecdc_core.ingest import IngestConfig, offsets_reader
from icecdc_core.ingest.commit_log import LoggedJob, TableEntry
from tests.unit.ingest.tables.commits.snapshot_history import Snapshot, Table, at

ROUTES = {"lake.ns.a": "a.*", "lake.ns.b": "b.*"}
LOGGED = LoggedJob(True, tables={"`lake`.`ns`.`logged`": TableEntry("`lake`.`ns`.`logged`")})


def make(**given):
    return IngestConfig(job="j", bootstrap_servers="127.0.0.1:9", topics="t", **given)


class Catalog:
    """A session whose namespace has these tables."""

    def __init__(self, *names):
        self.rows = [{"tableName": name} for name in names]

    def sql(self, text):
        assert text == "SHOW TABLES IN `lake`.`ns`"
        return SimpleNamespace(collect=lambda: self.rows)


def it_knows_the_tables_that_the_parameters_name():
    assert offsets_reader.known_tables(None, make(table="lake.ns.a"), LOGGED) == ["`lake`.`ns`.`a`"]
    actual = offsets_reader.known_tables(None, make(route_by="regex", routes=ROUTES), LOGGED)
    assert actual == ["`lake`.`ns`.`a`", "`lake`.`ns`.`b`"]


def it_knows_the_tables_of_the_namespace_and_of_the_log_but_not_the_ingests_own():
    catalog = Catalog("b", "a", "icecdc_ingest_log", "icecdc_ingest_dead_letters")
    actual = offsets_reader.known_tables(catalog, make(route_by="topic", namespace="lake.ns"), LOGGED)
    assert actual == ["`lake`.`ns`.`a`", "`lake`.`ns`.`b`", "`lake`.`ns`.`logged`"]


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([Table(Snapshot(1, None, 5)), Table(Snapshot(2, 1, 7))], [at(5), at(7)]),
        # A table without offsets may lack all records: it counts if any other table has offsets.
        ([Table(Snapshot(1, None, 5)), Table(Snapshot(1, None))], [at(5), {}]),
        ([Table(Snapshot(1, None, 5)), None], [at(5), {}]),
        ([Table(), None], []),
    ],
)
def it_returns_the_offsets_that_the_tables_record(monkeypatch, tables, expected):
    def load(spark, name):
        table = dict(zip(["`lake`.`ns`.`a`", "`lake`.`ns`.`b`"], tables, strict=True))[name]
        if table is None:
            raise TableNotFoundError("none", subject="table")
        return table

    monkeypatch.setattr(offsets_reader, "load_table", load)
    assert offsets_reader.recorded_offsets(None, make(route_by="regex", routes=ROUTES)) == expected
