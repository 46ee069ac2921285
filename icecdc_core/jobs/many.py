"""A job for many entries of a file in one Spark application, several at a time; one that fails stops no other."""

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import ConfigError
from icecdc_core.jobs.poll import audited, follow_changes
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.exit_states import failure_report
from icecdc_core.reporting.reports import ManyReport, Report, RunReport
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.catalog import register_catalog
from icecdc_core.session.job_session import new_job_session, run_in_threads, slot
from icecdc_core.session.jvm import active_session
from icecdc_core.session.processes import Stopped, StopRequest, stop_on_sigterm
from icecdc_core.table.failures import spark_errors


def require_one_session(configs: Mapping[str, ParameterModel]) -> None:
    """Check that one Spark application can serve all of these parameters; secrets are neither resolved nor shown."""
    firsts: dict[str, tuple[str, object]] = {}
    for name, config in configs.items():
        catalog = dict(config.catalog_properties), config.warehouse and config.warehouse_location
        described = {config.catalog: ("catalog_properties and warehouse", catalog)}
        for key, (parameters, value) in {**described, "": ("spark_conf", dict(config.spark_conf))}.items():
            first, other = firsts.setdefault(key, (name, value))
            if other != value:
                raise ConfigError(
                    f"'{first}' and '{name}' share a Spark application, and their {parameters} differ",
                    subject="index_file",
                    value=name,
                    remedy="give all entries of the file the same ones, or another catalog another name",
                )


def run_many(
    spark: SparkSession,
    job: Callable[[SparkSession, Any], Report],
    configs: Mapping[str, Any],
    *,
    command: str,
    parallel: int = 2,
    on_poll: Callable[[ManyReport], object] | None = None,
    on_failure: Callable[[str, dict[str, Any], str], object] = lambda name, failure, trace: None,
) -> ManyReport:
    """Run a job for each entry, in threads and sessions; ``on_failure`` is called at once: others may run for days."""
    began = time.monotonic()
    polls = job is follow_changes and any(config.polls for config in configs.values())
    for config in {config.catalog: config for config in configs.values()}.values():
        register_catalog(spark, config)
    reports: dict[str, Report | dict[str, Any]] = {
        name: RunReport(command, **config.subject, strategy="none") for name, config in configs.items()
    }
    one_at_a_time, free = threading.Lock(), threading.Semaphore(parallel)

    def ended(name: str, report: Report | dict[str, Any]) -> None:
        with one_at_a_time:
            reports[name] = report
            if polls and on_poll is not None:
                on_poll(ManyReport(dict(reports), round(time.monotonic() - began, 3)))

    def run_one(name: str, config: Any, own: SparkSession, stop: StopRequest) -> None:
        started, reported, sync_one = time.monotonic(), list[BaseException](), audited(sync_changes)

        def failed(error: BaseException) -> None:
            if error in reported:  # a polling run that is asked to stop raises its last failure
                return
            reported.append(error)
            facts = {"job": command, **config.subject, "seconds": round(time.monotonic() - started, 3)}
            failure = failure_report(error, facts)
            on_failure(name, failure, mask_secrets("".join(traceback.format_exception(error))))
            ended(name, failure)

        def sync(session: SparkSession, given: SyncConfig) -> RunReport:
            with slot(free, stop):
                return sync_one(session, given)

        try:
            with spark_errors(config):
                own.sparkContext.setJobGroup(f"icecdc {name}", f"{command} {name}")
                own.sparkContext.setLocalProperty("spark.scheduler.pool", name)
            with active_session(own):
                if job is follow_changes:
                    polled = partial(ended, name)
                    reports[name] = follow_changes(own, config, sync=sync, on_poll=polled, on_failure=failed)
                else:
                    with slot(free, stop):
                        reports[name] = job(own, config)
        except Stopped:
            if isinstance(report := reports[name], RunReport):
                reports[name] = replace(report, stopped=True)
        except BaseException as error:
            failed(error)

    stops = job is follow_changes or command == "ingest"  # between two polls or batches
    with stop_on_sigterm(or_interrupt=polls) if stops else nullcontext(StopRequest()) as stop:
        runs = {name: partial(run_one, name, config, new_job_session(spark), stop) for name, config in configs.items()}
        run_in_threads(spark, runs, stop)
    section = "ingests" if "ingest" in command else "indexes"
    return ManyReport(reports, round(time.monotonic() - began, 3), section)
