"""Real runs, watched by OpenTelemetry's SDK and a receiver of OpenLineage on loopback."""

from __future__ import annotations

import json
import os
import uuid
from urllib.parse import urlsplit

import pytest
from pyspark.sql import functions as F

from icecdc_core import sync_changes
from icecdc_core.errors import DuplicateIdentifierError
from tests.exported_tables import exported_table
from tests.monitoring_receivers import events_of, gauges_of, receiver, set_up_telemetry, spans_of

CREATE = "CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, email STRING, price DOUBLE) USING iceberg"
ROWS = "INSERT INTO {t} VALUES (1, 'ann', 'ann@example.com', 1.5), (2, 'bob', 'bob@example.com', 2.5)"


@pytest.fixture
def watched(monkeypatch, tmp_path):
    """The receiver of lineage, and what OpenTelemetry keeps."""
    for name in [name for name in os.environ if name.startswith(("OTEL_", "OPENLINEAGE", "TRACEPARENT"))]:
        monkeypatch.delenv(name)
    with receiver() as server:
        server.telemetry = set_up_telemetry(monkeypatch)
        monkeypatch.setenv("OPENLINEAGE_URL", server.url)
        yield server


@pytest.fixture
def exported(spark, sql, make_config):
    """A table of two rows and its index; it was not watched."""
    return exported_table(spark, sql, make_config(), CREATE, ROWS)


def trace_of(telemetry):
    """The run's span, and the names of the spans in it."""
    root, *stages = spans_of(telemetry)
    assert {stage.parent for stage in stages} <= {root.id, *(stage.id for stage in stages)}
    assert {stage.trace_id for stage in stages} == {root.trace_id}
    return root, [stage.name for stage in stages]


def dataset_at(place):
    """Namespace and name of the table's dataset: on this machine, or in a bucket."""
    parts = urlsplit(place)
    return ("s3://" + parts.netloc, parts.path.lstrip("/")) if parts.scheme == "s3" else ("file", parts.path)


def location(spark, table):
    return spark.sql(f"DESCRIBE EXTENDED {table}").where(F.col("col_name") == "Location").first()["data_type"]


class DescribeTraces:
    def it_shows_what_a_sync_did_and_where_its_time_went(self, spark, sql, exported, watched, tmp_path):
        sql("UPDATE {t} SET price = 9.5 WHERE id = 1")
        config = exported.replace(metrics_folder=str(tmp_path), log_path=str(tmp_path / "log"))
        report = sync_changes(spark, config)
        root, stages = trace_of(watched.telemetry)
        seconds = {span.name: span.seconds for span in spans_of(watched.telemetry)[1:]}
        shown = {
            name: root.attributes[f"icecdc.{name}"] for name in ("strategy", "upserts", "run_id", "state", "epoch")
        }
        assert (root.name, stages, shown) == (
            "icecdc sync",
            ["check", "plan", "changes", "documents", "write", "commit"],
            {"strategy": "diff", "upserts": 1, "run_id": report.run_id, "state": "ok", "epoch": report.epoch},
        )
        assert seconds == pytest.approx(report.stage_seconds, abs=0.5)
        assert root.attributes["icecdc.to_snapshot_id"] == str(report.to_snapshot_id)
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        assert {line["trace_id"] for line in lines} == {root.trace_id}
        text = (tmp_path / f"icecdc-{exported.index}-sync.prom").read_text()
        samples = [line.partition("{")[0] for line in text.splitlines() if not line.startswith("#")]
        assert sorted(samples) == sorted(name for name, _ in gauges_of(watched.telemetry))

    def it_shows_why_a_run_failed_without_a_value_of_its_rows(self, spark, sql, exported, watched):
        sql("INSERT INTO {t} VALUES (7, 'x', 'secret@example.com', 1), (7, 'y', 'secret@example.com', 2)")
        with pytest.raises(DuplicateIdentifierError):
            sync_changes(spark, exported)
        failed = [(span.name, span.attributes["error.type"]) for span in spans_of(watched.telemetry) if span.failed]
        message = events_of(watched.posts)[-1]["run"]["facets"]["errorMessage"]["message"]
        assert failed == [("icecdc sync", "DuplicateIdentifierError"), ("changes", "DuplicateIdentifierError")]
        assert message.startswith("DuplicateIdentifierError: rows or documents cannot be indexed")
        assert not any(b"secret@" in body or b"sharing" in body for _, _, body in watched.posts)
        assert not any("secret@" in span.raw or "sharing" in span.raw for span in spans_of(watched.telemetry))


class DescribeLineage:
    def it_leads_from_the_table_to_the_index(self, spark, sql, exported, watched):
        sql("UPDATE {t} SET price = 9.5 WHERE id = 1")
        report = sync_changes(spark, exported)
        start, complete = events_of(watched.posts)
        (table,), (index,) = complete["inputs"], complete["outputs"]
        assert [each["eventType"] for each in (start, complete)] == ["START", "COMPLETE"]
        assert complete["run"]["runId"] == str(uuid.UUID(report.run_id))
        assert (table["namespace"], table["name"]) == dataset_at(location(spark, exported.table))
        assert table["facets"]["version"]["datasetVersion"] == str(report.to_snapshot_id)
        url = exported.opensearch_url.removeprefix("http://")
        assert (index["namespace"], index["name"]) == (f"opensearch://{url}", exported.index)
