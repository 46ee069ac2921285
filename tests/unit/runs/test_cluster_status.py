"""How a position stands to its tables, from their metadata alone."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from icecdc_core.commits.position import Batch, NestedPosition, Position, position_document
from icecdc_core.config import SyncConfig
from icecdc_core.config.sync import StatusConfig
from icecdc_core.errors import (
    CatalogAuthError,
    HistoryGapError,
    SchemaChangeError,
    StatusUnknownError,
    TableReplacedError,
)
from icecdc_core.reporting.card import FAILED, IN_SYNC, UNKNOWN
from icecdc_core.reporting.exit_states import failure_report
from icecdc_core.reporting.reports import ManyReport, report_html
from icecdc_core.runs import cluster_status
from icecdc_core.runs.cluster_status import IndexStatus, StatusReport, table_facts
from icecdc_core.table.metadata_reader import read_metadata
from tests.checks.metric_samples import samples
from tests.given.table_metadata import SCHEMA, UUID, metadata, metadata_of

SELECTION = {"branch": "main", "columns": [], "row_filter": "", "identifier_columns": ["id"]}
AT_1 = Position("t", "l.n.t", UUID, 1, 3, "t--1", SELECTION, json.dumps(SCHEMA))
TWO = metadata((1, None, "append"), (2, 1, "append"), current=2)


def facts(position=AT_1, table=TWO, **parameters):
    return table_facts(lambda name: table, SyncConfig(table="l.n.t", **parameters), position_document(position, None))


def altered(*fields, **selection):
    """A position, and its table with other fields since."""
    schema = {**SCHEMA, "schema-id": 1, "fields": [*fields]}
    table = metadata_of([(1, None, "append", 1, {})], {"main": 1}, schema=schema)
    return replace(AT_1, selection={**SELECTION, **selection}), table


A = SCHEMA["fields"][0]
B = {"id": 2, "name": "b", "required": False, "type": "string"}
ROW_FILTER = {"row_filter": "a > 1"}
REFUSED = {
    "expired": ((replace(AT_1, snapshot_id=9),), HistoryGapError),
    "expired of a nested table": ((replace(AT_1, nested={"l.n.u": NestedPosition(UUID, 9, "")}),), HistoryGapError),
    "created again": ((replace(AT_1, table_uuid="other"),), TableReplacedError),
    "renamed": (altered({**A, "name": "z"}), SchemaChangeError),
    "an expression of all columns": (altered(A, B, select=["to_json(struct(*)) AS j"]), StatusUnknownError),
}


class DescribeTableFacts:
    @pytest.mark.parametrize(("given", "error"), REFUSED.values(), ids=REFUSED)
    def it_raises_why_the_next_sync_cannot_go_on_unless_it_exports(self, given, error):
        with pytest.raises(error):
            facts(*given)
        if error is not StatusUnknownError:
            found = facts(*given, on_history_gap="reexport", on_schema_change="reexport")
            assert (found["problem"][:21], "lag_snapshots" in found) == ("The next sync exports", False)

    @pytest.mark.parametrize(
        ("given", "lacks", "problem"),
        [
            ((AT_1,), 1, False),
            ((replace(AT_1, snapshot_id=2),), 0, False),
            ((replace(AT_1, snapshot_id=2), metadata((1, None, "append"), (2, 1, "append"), current=1)), 0, True),
            (altered(A, B, **ROW_FILTER), 0, False),
            (altered(A, B, select=["* EXCEPT (a)", "a * 2 AS c"]), 0, False),
        ],
    )
    def it_counts_the_snapshots_that_the_index_lacks(self, given, lacks, problem):
        found = facts(*given)
        assert (found["lag_snapshots"], bool(found.get("problem"))) == (lacks, problem)
        never = replace(AT_1, physical_index="", snapshot_id=None, table_uuid="")
        assert facts(never) == {"problem": "not exported yet"}


class DescribeAStatus:
    @pytest.mark.parametrize(
        ("changes", "found", "state"),
        [
            ({}, {"lag_snapshots": 0}, "ok"),
            ({}, {"lag_snapshots": 1}, "behind"),
            ({}, {"lag_snapshots": 0, "problem": "rolled back"}, "behind"),
            ({}, {}, "unknown"),
            ({"batch": Batch("sync", 4, 1, 2, "t--1")}, {"lag_snapshots": 0}, "behind"),
            ({"drifted": 2}, {"lag_snapshots": 0}, "differs"),
        ],
    )
    def it_is_ok_only_if_the_index_is_known_to_be_in_sync(self, changes, found, state):
        source = position_document(replace(AT_1, **changes), None)
        actual = cluster_status._status(SyncConfig(table="l.n.t"), source, {}, (lambda *_: dict(found),))
        assert actual.state == state


class DescribeThePromisedFreshness:
    """Of 5 minutes: by the catalog, else by `current_at`, which polls may leave for a minute."""

    @pytest.mark.parametrize(
        ("found", "plain", "check"),
        [
            ({"lag_snapshots": 0, "lag_seconds": 0.0}, "ok", "ok"),
            ({"lag_snapshots": 2, "lag_seconds": 299.0}, "behind", "ok"),
            ({"lag_snapshots": 2, "lag_seconds": 301.0}, "lagging", "lagging"),
            # Nothing was committed, and no sync has run.
            ({"lag_snapshots": 0, "lag_seconds": 0.0, "current_at": 9999}, "ok", "ok"),
            ({"current_at": 350}, "unknown", "ok"),
            ({"current_at": 370}, "lagging", "lagging"),
            ({}, "unknown", "unknown"),
            ({"lag_snapshots": 0, "lag_seconds": 0.0, "pending": {"kind": "sync"}}, "behind", "ok"),
            ({"lag_snapshots": 0, "lag_seconds": 0.0, "dead_letters": 3}, "behind", "behind"),
            ({"lag_snapshots": 0, "lag_seconds": 0.0, "drifted": 3}, "differs", "differs"),
        ],
    )
    def it_is_all_that_a_check_asks_for(self, found, plain, check, tmp_path):
        states, age = [], found.get("current_at")
        found |= {"current_at": datetime.fromtimestamp(time.time() - age, UTC).isoformat()} if age else {}
        for is_check in (False, True):
            config = StatusConfig(freshness_slo="5m", check=is_check, metrics_folder=str(tmp_path))
            source = position_document(AT_1, None)
            states.append(cluster_status._status(config, source, {}, (lambda *_: dict(found),)).state)
        assert states == [plain, check]
        metrics = samples((tmp_path / "icecdc-t-status.prom").read_text())
        shown = metrics["icecdc_freshness_slo_seconds", ""], metrics["icecdc_run_state", f'state="{check}"']
        assert shown == (300, 1)
        assert (metrics.get(("icecdc_freshness_seconds", ""), 0) > 300) == (check == "lagging")


def it_shows_many_indexes_at_one_glance():
    late = IndexStatus("late", "l.n.t", freshness_seconds=400.0, state="lagging")
    compared = {"parts": 2, "compared": 2, "oldest_compared_at": "2026-11-30T12:00:00+00:00"}
    compared |= {"differences": 0, "repaired": 0}
    good = replace(late, index="good", freshness_seconds=0.0, state="ok", audit=compared)
    rejects = replace(late, index="rejects", freshness_seconds=100.0, dead_letters=7, state="unknown")
    found = [late, good, IndexStatus("gap", "l.n.t", state="reexport"), rejects]
    reports = {each.index: StatusReport([each]) for each in found}
    report = ManyReport({**reports, "refused": failure_report(CatalogAuthError("no"), {})})
    bars = [("late", 400, "lagging", FAILED), ("gap", 0, "needs an export", FAILED)]
    bars.insert(1, ("good", 0, "ok, compared since 2026-11-30 12:00:00 UTC", IN_SYNC))
    bars += [("rejects", 100, "unknown, 7 dead letters", UNKNOWN), ("refused", 0, "access", FAILED)]
    assert report.bars() == bars
    assert report_html(report).count("width: max(3px, 25.0%)") == 1


class DescribeReadMetadata:
    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"catalog_properties": {"type": "hadoop", "warehouse": "/w"}}, "this is hadoop"),
            ({"catalog_properties": {"catalog-impl": "com.acme.Catalog"}}, "this is a class of its own"),
            ({"spark_conf": {"spark.sql.catalog.m.type": "hive"}}, "no parameter describes the catalog l"),
            ({"catalog_properties": {"type": "rest", "uri": "http://127.0.0.1:1"}}, "ConnectionError"),
            (
                {"catalog_properties": {"type": "jdbc", "uri": "jdbc:sqlite:/no/such.db"}},
                "unable to open database file",
            ),
            ({"catalog_properties": {"type": "rest", "uri": "env:NOWHERE_TO_BE_FOUND"}}, "SecretError"),
        ],
    )
    def it_says_why_it_cannot_know(self, given, says):
        config = SyncConfig(table="k.n.t" if "spark_conf" in given else "l.n.t", **given)
        with pytest.raises(StatusUnknownError, match=says):
            read_metadata(config, "l.n.t")

    def it_shows_no_secret(self, monkeypatch):
        monkeypatch.setenv("PASSWORD", "hunter2")
        properties = {"type": "jdbc", "uri": "jdbc:sqlit://h/d", "jdbc.user": "u", "jdbc.password": "env:PASSWORD"}
        with pytest.raises(StatusUnknownError) as caught:
            read_metadata(SyncConfig(table="l.n.t", catalog_properties=properties), "l.n.t")
        assert ("hunter2" in str(caught.value), "sqlit" in str(caught.value)) == (False, True)
