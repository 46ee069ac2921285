"""What a run leaves for those who watch it: log, metrics, failure report, exit code, status."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.__main__ import main
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import (
    IndexNotFoundError,
    OpenSearchUnreachableError,
    RejectedDocumentsError,
    TableNotFoundError,
)
from icecdc_core.jobs.status import status
from icecdc_core.logs import LOGGER
from tests.conftest import GIVEN_CATALOG
from tests.faults.test_storage_faults import missing, newest_file

CREATE = "CREATE TABLE {t} (id BIGINT NOT NULL, value DOUBLE) USING iceberg TBLPROPERTIES ('format-version' = '2')"


@pytest.fixture
def exported(spark, sql, make_config, tmp_path):
    """A table of three rows and its index, its runs watched."""
    config = make_config(
        log_path=str(tmp_path / "log.jsonl"),
        metrics_folder=str(tmp_path / "metrics"),
        report_path=str(tmp_path / "report.json"),
    )
    sql(CREATE)
    sql("INSERT INTO {t} VALUES (1, 1.5), (2, 2.5), (3, 3.5)")
    export_table(spark, config)
    yield config
    spark.sql("DROP TABLE IF EXISTS lake.ns.icecdc_dead_letters")


def entries(config):
    return [json.loads(line) for line in Path(config.log_path).read_text().splitlines()]


def metric(config, job, name, label=""):
    text = (Path(config.metrics_folder) / f"icecdc-{config.index}-{job}.prom").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{") and label in line]
    return float(line.rpartition(" ")[2])


class DescribeTheLog:
    def it_names_run_table_batch_and_stage_of_everything(self, spark, sql, exported):
        sql("UPDATE {t} SET value = 9.5 WHERE id = 1")
        report = sync_changes(spark, exported)
        of_run = [entry for entry in entries(exported) if entry["run_id"] == report.run_id]
        messages = {entry["message"] for entry in of_run}
        write = next(entry for entry in of_run if entry.get("stage") == "write")
        changes = next(entry for entry in of_run if entry.get("stage") == "changes")
        assert changes["change_strategy"] == "narrow-rows"
        assert (messages, write["table"], write["index"], write["job"], write["batch"]) == (
            {"run started", "stage ended", "batch begun", "batch committed", "run ended"},
            exported.table,
            exported.index,
            "sync",
            report.epoch,
        )
        last = of_run[-1]
        assert (last["message"], last["state"], last["upserts"]) == ("run ended", "ok", 1)


class DescribeMetrics:
    def it_counts_what_the_run_did_and_how_far_behind_it_was(self, spark, sql, exported):
        sql("UPDATE {t} SET value = 9.5 WHERE id = 1")
        sql("DELETE FROM {t} WHERE id = 2")
        report = sync_changes(spark, exported)
        found = {
            "upserts": metric(exported, "sync", "icecdc_documents", 'result="upserts"'),
            "deletes": metric(exported, "sync", "icecdc_documents", 'result="deletes"'),
            "behind": metric(exported, "sync", "icecdc_lag_snapshots", 'at="start"'),
            "left": metric(exported, "sync", "icecdc_lag_snapshots", 'at="end"'),
            "requests": metric(exported, "sync", "icecdc_bulk_requests"),
            "success": metric(exported, "sync", "icecdc_run_success"),
        }
        expected = {"upserts": 1, "deletes": 1, "behind": 2, "left": 0, "requests": report.requests, "success": 1}
        assert (found, report.lag_snapshots, report.lag_seconds > 0) == (expected, 2, True)

    def it_shows_what_a_validation_found(self, spark, opensearch, exported):
        opensearch.delete(index=exported.index, id="3", params={"refresh": "true"})
        validate_table(spark, exported)
        found = metric(exported, "validate", "icecdc_differences", "missing")
        assert (found, metric(exported, "validate", "icecdc_run_state", "differs")) == (1, 1)

    def it_never_fails_a_run_for_a_gateway_that_is_away(self, spark, exported):
        sync_changes(spark, exported.replace(metrics_url="http://127.0.0.1:1"))
        assert "the metrics were not published" in entries(exported)[-1]["message"]


class DescribeAFailedRun:
    def it_leaves_a_report_with_its_state(self, spark, exported):
        with pytest.raises(OpenSearchUnreachableError):
            sync_changes(spark, exported.replace(opensearch_url="http://127.0.0.1:1"))
        report = json.loads(Path(exported.report_path).read_text())
        names = ("state", "exit_code", "error", "job")
        assert [report[name] for name in names] == ["retry", 5, "OpenSearchUnreachableError", "sync"]

    def it_says_what_really_happened_when_the_report_cannot_be_written(self, spark, exported, tmp_path, caplog):
        class Spoiler(logging.Handler):
            def emit(self, record):
                """Put a folder where the report goes, once the run has begun."""
                (tmp_path / "report").mkdir(exist_ok=True)

        gone = exported.replace(table="lake.ns.nowhere", report_path=str(tmp_path / "report"))
        spoiler = Spoiler()
        spoiler.addFilter(lambda record: record.getMessage() == "stage ended")
        LOGGER.addHandler(spoiler)
        try:
            with caplog.at_level(logging.INFO, LOGGER.name), pytest.raises(TableNotFoundError):
                sync_changes(spark, gone)
        finally:
            LOGGER.removeHandler(spoiler)
        assert "report_path" in entries(exported)[-1]["message"]

    def it_is_counted_with_the_lag_it_found(self, spark, sql, opensearch, exported):
        sql("DELETE FROM {t} WHERE id = 2")
        opensearch.indices.delete(index=f"{exported.index}--*")
        with pytest.raises(IndexNotFoundError):
            sync_changes(spark, exported)
        lag = metric(exported, "sync", "icecdc_lag_snapshots", 'at="end"')
        assert (lag, metric(exported, "sync", "icecdc_run_state", "reexport")) == (1, 1)


class DescribeTheConsoleCommand:
    """In this process, whose session is used."""

    def run(self, capsys, *arguments):
        code = main(arguments, "icecdc")
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    def of(self, config):
        given = ["--table", config.table, "--index", config.index, "--opensearch-url", config.opensearch_url]
        given += ["--warehouse", config.warehouse, "--catalog-properties", GIVEN_CATALOG]
        given += ["--positions-index", config.positions_index]
        return [*given, "--identifier-columns", "id"]

    def it_ends_with_the_report_and_the_code_of_how_the_run_ended(self, capsys, sql, exported):
        sql("DELETE FROM {t} WHERE id = 2")
        code, out, _ = self.run(capsys, "sync", *self.of(exported), "--json")
        assert (code, json.loads(out.splitlines()[-1])["deletes"]) == (0, 1)
        planted = ("--opensearch-username", "me", "--opensearch-password", "planted", "--json")
        code, out, err = self.run(capsys, "sync", *self.of(exported), *planted)
        assert (code, json.loads(out.splitlines()[-1])["state"], "planted" in out + err) == (2, "config", False)

    def it_shows_the_status_without_a_table(self, capsys, opensearch, exported):
        given = ["--opensearch-url", exported.opensearch_url, "--positions-index", exported.positions_index]
        code, out, err = self.run(capsys, "status", *given)
        heading, row = out.splitlines()
        assert (code, err, heading.split(), row.split()[:2]) == (
            0,
            "",
            ["index", "table", "status"],
            [exported.index, exported.table],
        )
        for table, says in (
            ("lake.ns.nowhere", "The catalog of this session has no Iceberg table 'lake.ns.nowhere'"),
            ("elsewhere.ns.t", "The catalog of 'elsewhere.ns.t' cannot be used"),
        ):
            position = {"index": exported.positions_index, "id": f"position:{exported.index}"}
            opensearch.update(**position, body={"doc": {"table": table}}, params={"refresh": "true"})
            code, out, _ = self.run(capsys, "status", *given)
            assert (code != 0, says in out) == (True, True), (code, out)

    def it_names_every_problem_of_a_setup(self, capsys, exported):
        gone = exported.replace(table="lake.ns.nowhere", opensearch_url="http://127.0.0.1:1")
        code, out, _ = self.run(capsys, "setup", *self.of(gone))
        assert (code, out.count("Remedy: "), "NOT ready" in out) == (2, 2, True)


class DescribeStatus:
    def of(self, spark, config):
        (found,) = status(spark, config).indexes
        return found

    def it_shows_position_lag_and_last_run(self, spark, sql, exported):
        sql("DELETE FROM {t} WHERE id = 2")
        found = self.of(spark, exported)
        shown = (found.lag_snapshots, found.last_run["kind"], found.last_run["upserts"], found.pending, found.running)
        assert (shown, found.lag_seconds > 0, found.problem) == ((1, "export", 3, None, None), True, "")
        ((index, line),) = status(spark, exported).rows()
        assert (index, "1 snapshots" in line, "last export" in line) == (exported.index, True, True)

    def it_shows_what_was_begun_and_why_it_failed(self, spark, sql, exported):
        sql("INSERT INTO {t} VALUES (4, double('NaN'))")
        with pytest.raises(RejectedDocumentsError):
            sync_changes(spark, exported)
        found = self.of(spark, exported)
        assert (found.pending["kind"], "rejected" in found.pending["failure"], found.dead_letters) == ("sync", True, 1)

    def it_shows_who_is_at_work(self, spark, opensearch, exported):
        lock = PositionStore(opensearch, exported).lock(exported.table, "", "the-other-run")
        try:
            running = self.of(spark, exported).running
        finally:
            lock.release()
        assert (running["run_id"], running["alive"]) == ("the-other-run", True)

    @pytest.mark.skipif(bool(GIVEN_CATALOG), reason="needs the files of the embedded catalog")
    def it_goes_on_when_a_file_of_the_dead_letters_is_gone(self, spark, sql, exported, name):
        letters = exported.replace(dead_letter_table=f"lake.ns.letters_{name}", max_rejected_documents=1)
        sql("INSERT INTO {t} VALUES (4, double('NaN'))")
        sync_changes(spark, letters)
        missing(newest_file(spark, letters.dead_letter_table))
        found = self.of(spark, letters)
        spark.sql(f"DROP TABLE {letters.dead_letter_table}")
        assert (found.dead_letters, "rejected documents cannot be used" in found.problem) == (None, True)
        assert found.lag_snapshots == 0
