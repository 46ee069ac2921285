"""The smoke test: it tries out each kind of table, reports every check, and leaves nothing behind."""

from __future__ import annotations

import json

import pytest

from icecdc_core.errors import OpenSearchUnreachableError
from icecdc_core.jobs.smoke import KINDS, smoke_test
from icecdc_core.notebook import finish

SECRET = "a secret of the test"


def tables(spark):
    return {row.tableName for row in spark.sql("SHOW TABLES IN lake.ns").collect()}


def indexes_like(opensearch, config):
    return opensearch.indices.get(index=f"*{config.index}*", params={"expand_wildcards": "all"})


def states(report):
    return {(check["kind"], check["check"]): check["state"] for check in report.checks}


class DescribeSmokeTest:
    def it_passes_every_check_on_each_kind_of_table_and_leaves_nothing(
        self, spark, make_config, opensearch, monkeypatch
    ):
        monkeypatch.setenv("SMOKE_PASSWORD", SECRET)
        # What describes the table of the index is not for the scratch tables.
        config = make_config(
            select=["x"], row_filter="y > 1", opensearch_username="u", opensearch_password="env:SMOKE_PASSWORD"
        )
        before = tables(spark)
        report = smoke_test(spark, config)
        assert [check for check in report.checks if check["state"] != "passed"] == []
        assert (report.ok, report.state, report.line) == (True, "ok", "27 of 27 checks passed")
        assert {check["kind"] for check in report.checks} == set(KINDS)
        assert tables(spark) == before
        assert indexes_like(opensearch, config) == {}

        found = report.environment
        assert (found["Spark"], found["Databricks runtime"]) == (spark.version, "none")
        assert found["catalog"] == "lake"
        assert "iceberg-spark-runtime-" in found["Iceberg's jar"]
        assert SECRET not in report.to_json() + report.text()

    def it_goes_on_after_a_failure_and_names_its_class_and_remedy(self, spark, make_config, capsys):
        config = make_config(opensearch_url="http://127.0.0.1:9", retry_timeout_seconds=0)
        before = tables(spark)
        report = smoke_test(spark, config)
        assert (report.ok, report.state, report.environment["OpenSearch"][:7]) == (False, "retry", "unknown")
        assert states(report)["v3 deletion vectors", "create table"] == "passed"
        assert states(report)["v3 deletion vectors", "sync"] == "skipped"
        failed = next(check for check in report.checks if check["state"] == "failed")
        assert (failed["check"], failed["error"]) == ("setup", "OpenSearchUnreachableError")
        assert failed["remedy"]
        assert tables(spark) == before
        left = next(check for check in report.checks if check["check"] == "drop index")
        assert f"the indexes {config.index}-smoke-" in left["remedy"]

        with pytest.raises(OpenSearchUnreachableError):
            finish(report, config, {})
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["checks"] == report.checks

    def it_leaves_no_dead_letters_when_the_cluster_refuses_documents(
        self, spark, make_config, opensearch, monkeypatch, request
    ):
        (kind, properties), *_ = KINDS.items()
        monkeypatch.setattr("icecdc_core.jobs.smoke.KINDS", {kind: properties})
        config, before = make_config(), tables(spark)
        refusing = f"refuse-{config.index}"
        convert = {"convert": {"field": "name", "type": "integer"}}
        opensearch.ingest.put_pipeline(id=refusing, body={"processors": [convert]})
        request.addfinalizer(lambda: opensearch.ingest.delete_pipeline(id=refusing))
        template = {"settings": {"index.final_pipeline": refusing}}
        body = {"index_patterns": [f"{config.index}-smoke-*--*"], "template": template}
        opensearch.indices.put_index_template(name=refusing, body=body)
        request.addfinalizer(lambda: opensearch.indices.delete_index_template(name=refusing))
        report = smoke_test(spark, config)
        failed = [(check["check"], check["error"]) for check in report.checks if check["state"] == "failed"]
        assert failed == [("export", "RejectedDocumentsError")]
        assert (tables(spark), indexes_like(opensearch, config)) == (before, {})

    def it_leaves_nothing_when_it_is_interrupted(self, spark, make_config, opensearch, monkeypatch):
        def interrupt(*arguments):
            raise KeyboardInterrupt

        monkeypatch.setattr("icecdc_core.jobs.smoke.sync_changes", interrupt)
        monkeypatch.setattr("icecdc_core.jobs.smoke.KINDS", dict([*KINDS.items()][:1]))
        config, before = make_config(), tables(spark)
        with pytest.raises(KeyboardInterrupt):
            smoke_test(spark, config)
        assert tables(spark) == before
        assert indexes_like(opensearch, config) == {}
