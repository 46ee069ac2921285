"""Real runs, watched by OpenTelemetry's SDK and a receiver of OpenLineage on loopback."""

import json
import os
import uuid
from urllib.parse import urlsplit

import pytest
from pyspark.sql import functions as F

from icecdc_core import export_table, sync_changes
from icecdc_core.errors import DuplicateIdentifierError
from tests.servers.monitoring_receivers import events_of, gauges_of, receiver, set_up_telemetry, spans_of


@pytest.fixture
def server(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("OTEL_", "OPENLINEAGE", "TRACEPARENT"))]:
        monkeypatch.delenv(name)
    with receiver() as server:
        yield server


def it_shows_what_a_sync_did_and_no_value_of_its_rows(spark, sql, make_config, server, monkeypatch, tmp_path):
    config = make_config(metrics_folder=str(tmp_path), log_path=str(tmp_path / "log"))
    create = "CREATE TABLE {t} (id BIGINT NOT NULL, email STRING, price DOUBLE) USING iceberg"
    sql(create, "INSERT INTO {t} VALUES (1, 'ann@example.com', 1.5), (2, 'bob@example.com', 2.5)")
    export_table(spark, config.replace(log_path="", metrics_folder=""))
    monkeypatch.setenv("OPENLINEAGE_URL", server.url)
    telemetry = set_up_telemetry(monkeypatch)
    sql("UPDATE {t} SET price = 9.5 WHERE id = 1")
    report = sync_changes(spark, config)

    root, *stages = spans_of(telemetry)
    assert {stage.parent for stage in stages} <= {root.id, *(stage.id for stage in stages)}
    assert {stage.trace_id for stage in stages} == {root.trace_id}
    names = ["check", "plan", "changes", "documents", "write", "commit"]
    assert (root.name, [stage.name for stage in stages]) == ("icecdc sync", names)
    shown = {name: root.attributes[f"icecdc.{name}"] for name in ("strategy", "upserts", "run_id", "state", "epoch")}
    expected = {"strategy": "diff", "upserts": 1, "run_id": report.run_id, "state": "ok", "epoch": report.epoch}
    assert (shown, root.attributes["icecdc.to_snapshot_id"]) == (expected, str(report.to_snapshot_id))
    assert {stage.name: stage.seconds for stage in stages} == pytest.approx(report.stage_seconds, abs=0.5)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {line["trace_id"] for line in lines} == {root.trace_id}
    text = (tmp_path / f"icecdc-{config.index}-sync.prom").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    samples = sorted((line.partition("{")[0], float(line.rpartition(" ")[2])) for line in lines)
    assert samples == sorted((name, value) for (name, _), value in gauges_of(telemetry).items())

    start, complete = events_of(server.posts)
    (table,), (index,) = complete["inputs"], complete["outputs"]
    assert [each["eventType"] for each in (start, complete)] == ["START", "COMPLETE"]
    assert complete["run"]["runId"] == str(uuid.UUID(report.run_id))
    described = spark.sql(f"DESCRIBE EXTENDED {config.table}").where(F.col("col_name") == "Location")
    place = urlsplit(described.first()["data_type"])  # on this machine, or in a bucket
    expected = ("s3://" + place.netloc, place.path.lstrip("/")) if place.scheme == "s3" else ("file", place.path)
    assert (table["namespace"], table["name"]) == expected
    assert table["facets"]["version"]["datasetVersion"] == str(report.to_snapshot_id)
    url = config.opensearch_url.removeprefix("http://")
    assert (index["namespace"], index["name"]) == (f"opensearch://{url}", config.index)

    sql("INSERT INTO {t} VALUES (7, 'secret@example.com', 1), (7, 'secret@example.com', 2)")
    with pytest.raises(DuplicateIdentifierError):
        sync_changes(spark, config)
    failed = [(span.name, span.attributes["error.type"]) for span in spans_of(telemetry) if span.failed]
    message = events_of(server.posts)[-1]["run"]["facets"]["errorMessage"]["message"]
    assert failed == [("icecdc sync", "DuplicateIdentifierError"), ("changes", "DuplicateIdentifierError")]
    assert message.startswith("DuplicateIdentifierError: rows or documents cannot be indexed")
    assert not any(b"secret@" in body or b"sharing" in body for _, _, body in server.posts)
    assert not any("secret@" in span.raw or "sharing" in span.raw for span in spans_of(telemetry))
