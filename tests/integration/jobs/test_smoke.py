"""The smoke test: it tries out each kind of table, reports every check, and leaves nothing behind."""

from __future__ import annotations

import json

from icecdc_core.jobs.smoke import KINDS, smoke_test
from icecdc_core.notebook import finish


def tables(spark):
    return {row.tableName for row in spark.sql("SHOW TABLES IN lake.ns").collect()}


def states(report):
    return {(check["kind"], check["check"]): check["state"] for check in report.checks}


class DescribeSmokeTest:
    def it_passes_every_check_on_each_kind_of_table_and_leaves_nothing(self, spark, make_config, opensearch):
        config = make_config(select=["id"], row_filter="id > 1", report_path="")
        before = tables(spark)
        report = smoke_test(spark, config)
        assert [check for check in report.checks if check["state"] != "passed"] == []
        assert (report.ok, report.state, report.line) == (True, "ok", "24 of 24 checks passed")
        assert {check["kind"] for check in report.checks} == set(KINDS)
        assert tables(spark) == before
        assert opensearch.indices.get(index=f"*{config.index}*", params={"expand_wildcards": "all"}) == {}

    def it_reports_the_environment_without_secrets(self, spark, make_config, monkeypatch):
        monkeypatch.setenv("OPENSEARCH_PASSWORD_OF_TEST", "a secret of the test")
        config = make_config(opensearch_username="u", opensearch_password="env:OPENSEARCH_PASSWORD_OF_TEST")
        report = smoke_test(spark, config)
        found = report.environment
        assert (found["Spark"], found["session"], found["Databricks runtime"]) == (spark.version, "classic", "none")
        assert (found["Iceberg's extensions"], found["catalog"]) == ("loaded", "lake")
        assert found["Iceberg's jar"].startswith("org.apache.iceberg_iceberg-spark-runtime-")
        assert found["catalog class"] == "org.apache.iceberg.jdbc.JdbcCatalog"
        assert "a secret of the test" not in report.to_json() + report.text()

    def it_goes_on_after_a_failure_and_names_its_class_and_remedy(self, spark, make_config, capsys):
        report = smoke_test(spark, make_config(opensearch_url="http://127.0.0.1:9", retry_timeout_seconds=0))
        assert (report.ok, report.state, report.environment["OpenSearch"][:7]) == (False, "retry", "unknown")
        assert states(report)["v3 deletion vectors", "create table"] == "passed"
        assert states(report)["v3 deletion vectors", "sync"] == "skipped"
        failed = next(check for check in report.checks if check["state"] == "failed")
        assert (failed["check"], failed["error"]) == ("setup", "OpenSearchUnreachableError")
        assert failed["remedy"]

    def it_reports_a_namespace_that_does_not_exist(self, spark, make_config, name):
        report = smoke_test(spark, make_config(table=f"lake.missing_{name}.t"))
        failed = [check["check"] for check in report.checks if check["state"] == "failed"]
        assert failed == ["create table"] * len(KINDS)

    def it_prints_the_report_of_a_notebook_before_it_fails(self, spark, make_config, name, capsys):
        config = make_config(table=f"lake.missing_{name}.t")
        report = smoke_test(spark, config)
        try:
            finish(report, config, {})
        except Exception as error:
            ended = error
        assert ended is report.errors[0]
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["ok"] is False
