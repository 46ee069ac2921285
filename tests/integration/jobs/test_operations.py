"""What a run leaves for those who watch it: log, metrics, failure report, exit code, status."""

import json
from pathlib import Path

import pytest

from icecdc_core import sync_changes, validate_table
from icecdc_core.__main__ import main
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IndexNotFoundError, OpenSearchUnreachableError, RejectedDocumentsError
from icecdc_core.jobs.status import status
from tests.conftest import GIVEN_CATALOG
from tests.faults.test_storage_faults import newest_file

CREATE = "CREATE TABLE {t} (id BIGINT NOT NULL, value DOUBLE) USING iceberg TBLPROPERTIES ('format-version' = '2')"


@pytest.fixture
def exported(spark, new_index, tmp_path):
    files = {"log_path": "log.jsonl", "metrics_folder": "metrics", "report_path": "report.json"}
    files = {name: str(tmp_path / file) for name, file in files.items()}
    yield new_index(CREATE, "INSERT INTO {t} VALUES (1, 1.5), (2, 2.5), (3, 3.5)", **files)
    spark.sql("DROP TABLE IF EXISTS lake.ns.icecdc_dead_letters")


def entries(config):
    return [json.loads(line) for line in Path(config.log_path).read_text().splitlines()]


def metric(config, job, name, label=""):
    text = (Path(config.metrics_folder) / f"icecdc-{config.index}-{job}.prom").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{") and label in line]
    return float(line.rpartition(" ")[2])


def it_leaves_its_log_and_metrics_and_fails_for_no_gateway_that_is_away(spark, sql, exported, opensearch):
    # The rows of rewritten files are counted, but not those of a compaction.
    sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.update.mode' = 'copy-on-write')")
    sql("INSERT INTO {t} SELECT id, 1.5 FROM range(100, 110, 1, 1)", "UPDATE {t} SET value = 9.5 WHERE id = 107")
    options = "options => map('rewrite-all', 'true')"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{exported.table}', {options})")
    report = sync_changes(spark, exported)
    assert (report.upserts, report.rows_rewritten) == (10, 10 + 2 * 10)

    sql("UPDATE {t} SET value = 9.5 WHERE id = 1", "DELETE FROM {t} WHERE id = 2")
    report = sync_changes(spark, exported.replace(metrics_url="http://127.0.0.1:1"))
    assert "the metrics were not published" in entries(exported)[-1]["message"]
    of_run = [entry for entry in entries(exported) if entry["run_id"] == report.run_id]
    write = next(entry for entry in of_run if entry.get("stage") == "write")
    changes = next(entry for entry in of_run if entry.get("stage") == "changes")
    assert changes["change_strategy"] == "narrow-rows"
    names = {"run started", "stage ended", "batch begun", "batch committed", "run ended"}
    assert names <= {entry["message"] for entry in of_run}
    expected = (exported.table, exported.index, "sync", report.epoch)
    assert tuple(write[name] for name in ("table", "index", "job", "batch")) == expected
    last = next(entry for entry in of_run if entry["message"] == "run ended")
    assert (last["state"], last["upserts"]) == ("ok", 1)
    for name, label, value in (
        ("documents", 'result="upserts"', 1),
        ("documents", 'result="deletes"', 1),
        ("lag_snapshots", 'at="start"', 2),
        ("lag_snapshots", 'at="end"', 0),
        ("bulk_requests", "", report.requests),
        ("run_success", "", 1),
    ):
        assert metric(exported, "sync", f"icecdc_{name}", label) == value, (name, label)
    assert (report.lag_snapshots, report.lag_seconds > 0) == (2, True)
    opensearch.delete(index=exported.index, id="3", params={"refresh": "true"})
    validate_table(spark, exported)
    missing = metric(exported, "validate", "icecdc_differences", "missing")
    assert (missing, metric(exported, "validate", "icecdc_run_state", "differs")) == (1, 1)

    # A failed run leaves a report, and the lag that it found.
    with pytest.raises(OpenSearchUnreachableError):
        sync_changes(spark, exported.replace(opensearch_url="http://127.0.0.1:1"))
    report = json.loads(Path(exported.report_path).read_text())
    names = ("state", "exit_code", "error", "job")
    assert [report[name] for name in names] == ["retry", 5, "OpenSearchUnreachableError", "sync"]
    sync_changes(spark, exported)
    assert json.loads(Path(exported.report_path).read_text())["state"] == "ok"
    sql("DELETE FROM {t} WHERE id = 1")
    opensearch.indices.delete(index=f"{exported.index}--*")
    with pytest.raises(IndexNotFoundError):
        sync_changes(spark, exported)
    lag = metric(exported, "sync", "icecdc_lag_snapshots", 'at="end"')
    assert (lag, metric(exported, "sync", "icecdc_run_state", "reexport")) == (1, 1)


def it_ends_a_command_with_the_report_and_the_code_of_how_the_run_ended(capsys, sql, opensearch, exported, tmp_path):
    """In this process, whose session is used."""

    def run(*arguments):
        code = main(arguments, "icecdc")
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    places = ["--opensearch-url", exported.opensearch_url, "--positions-index", exported.positions_index]
    sync = ["sync", "--table", exported.table, "--index", exported.index, *places, "--warehouse", exported.warehouse]
    sync += ["--catalog-properties", GIVEN_CATALOG, "--identifier-columns", "id", "--json"]
    sql("DELETE FROM {t} WHERE id = 2")
    code, out, _ = run(*sync)
    assert (code, json.loads(out.splitlines()[-1])["deletes"]) == (0, 1)
    code, out, err = run(*sync, "--opensearch-username", "me", "--opensearch-password", "planted")
    assert (code, json.loads(out.splitlines()[-1])["state"], "planted" in out + err) == (2, "config", False)
    # The status needs no table, but the catalog.
    catalog = ["--warehouse", exported.warehouse, "--catalog-properties", GIVEN_CATALOG]
    code, out, err = run("status", *places, *catalog)
    heading, row = out.splitlines()
    shown = code, err, heading.split()[:3], row.split()[:5]
    expected = [exported.index, exported.table, "up", "to", "date;"]
    assert shown == (0, "", ["index", "table", "status"], expected)
    code, out, _ = run("status", *places, "--warehouse", str(tmp_path), "--json")
    (found,) = json.loads(out)["indexes"]
    unknown = code, found["state"], found["lag_snapshots"], found["pending"], found["last_run"]["deletes"]
    assert (unknown, found["problem"].startswith("unknown: ")) == ((12, "unknown", None, None, 1), True)
    for table, says in (
        ("lake.ns.nowhere", "The catalog of this session has no Iceberg table 'lake.ns.nowhere'"),
        ("elsewhere.ns.t", "The catalog of 'elsewhere.ns.t' cannot be used"),
    ):
        position = {"index": exported.positions_index, "id": f"position:{exported.index}"}
        opensearch.update(**position, body={"doc": {"table": table}}, params={"refresh": "true"})
        code, out, _ = run("status", *places, "--tables")
        assert (code != 0, says in out) == (True, True), (code, out)


@pytest.mark.skipif(bool(GIVEN_CATALOG), reason="needs the files of the embedded catalog")
def it_shows_who_is_at_work_the_lag_the_last_run_and_why_it_failed(spark, sql, opensearch, exported, name):
    def of(config):
        (found,) = status(spark, config).indexes
        return found

    lock = PositionStore(opensearch, exported).lock(exported.table, "", "the-other-run")
    try:
        running = of(exported).running
    finally:
        lock.release()
    assert (running["run_id"], running["alive"]) == ("the-other-run", True)
    sql("INSERT INTO {t} VALUES (4, double('NaN'))")
    found = of(exported)
    shown = (found.lag_snapshots, found.last_run["kind"], found.last_run["upserts"], found.pending, found.running)
    assert (shown, found.lag_seconds > 0, found.problem) == ((1, "export", 3, None, None), True, "")
    with pytest.raises(RejectedDocumentsError):
        sync_changes(spark, exported)
    found = of(exported)
    assert (found.pending["kind"], "rejected" in found.pending["failure"], found.dead_letters) == ("sync", True, 1)
    # A file of the dead letters is gone.
    letters = exported.replace(dead_letter_table=f"lake.ns.letters_{name}", max_rejected_documents=1)
    sync_changes(spark, letters)
    newest_file(spark, letters.dead_letter_table).unlink()
    found = of(letters)
    spark.sql(f"DROP TABLE {letters.dead_letter_table}")
    assert (found.dead_letters, "rejected documents cannot be used" in found.problem) == (None, True)
    assert found.lag_snapshots == 0
