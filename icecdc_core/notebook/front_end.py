"""The first and the last cell of a notebook: open services and session, return the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import IndexDiffersError
from icecdc_core.jobs.checks.smoke_report import SmokeReport
from icecdc_core.reporting.reports import Report, ValidationReport, report_json, write_report
from icecdc_core.session import get_spark
from icecdc_core.session.jvm_output import jvm_output_to_file
from icecdc_core.session.spark import running_session


def open_services(config: SyncConfig) -> SyncConfig:
    """Start an embedded OpenSearch if no server is given or running.

    A given `opensearch_url` is used as it is. Otherwise the server at the default URL is used; without one, an embedded
    server starts and stays running for the next notebook.

    Returns:
        The configuration with the server's address.
    """
    if "opensearch_url" in config.model_fields_set:
        return config
    from icecdc_core.local import start_opensearch
    from icecdc_core.local.server import cluster_at

    if cluster_at(config.opensearch_url):
        return config
    url = start_opensearch().url
    print(f"Embedded OpenSearch at {url}; `icecdc services down` stops it.")  # noqa: T201
    return config.replace(opensearch_url=url)


def open_spark(config: ParameterModel) -> SparkSession:
    """Return the session of `get_spark`; the output of a new JVM goes to a file instead of the notebook."""
    if running_session() is not None:
        return get_spark(config)
    with jvm_output_to_file() as log:
        spark = get_spark(config)
    print(f"Spark {spark.version}; its log is {log}")  # noqa: T201
    return spark


def finish(
    report: Report | Mapping[str, Any],
    config: ParameterModel,
    namespace: Mapping[str, Any],
) -> None:
    """End the notebook: print the report as one JSON object, write it to `report_path`, return it to the job.

    Args:
        report: The report.
        config: The parameters; `report_path` and `fail_on_difference` are used here.
        namespace: The notebook's `globals()`.

    Raises:
        IndexDiffersError: A validation found a difference and `fail_on_difference` is set.
        IcecdcError: A check of a smoke test failed.
    """
    text = report_json(report)
    if config.report_path:
        write_report(report, config.report_path)
    print(text, flush=True)  # noqa: T201
    fails = isinstance(config, SyncConfig) and config.fail_on_difference
    if isinstance(report, ValidationReport) and fails and not report.ok:
        raise IndexDiffersError(
            f"The index '{report.index}' differs from '{report.table}': {report.missing} missing, "
            f"{report.extra} extra, {report.stale} stale documents",
            subject="fail_on_difference",
            value=True,
            remedy="run the validation with repair=true; find out who else writes into the index",
        )
    if isinstance(report, SmokeReport):
        report.require_ok()
    dbutils = namespace.get("dbutils")
    if dbutils is not None:
        # This ends the notebook by an exception and returns the result to the job, so it must be the last statement.
        dbutils.notebook.exit(text)
