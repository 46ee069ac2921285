"""One job for many indexes in one Spark application, several at a time; one that fails does not stop the others."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icecdc_core.errors import ConfigError
from icecdc_core.jobs.poll import follow_changes
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.reporting.exit_states import failure_of, failure_report, state_of
from icecdc_core.reporting.reports import ManyReport, Report, RunReport
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.catalog import register_catalog
from icecdc_core.session.job_session import new_job_session
from icecdc_core.session.processes import Stopped, StopRequest, stop_on_sigterm
from icecdc_core.session.threads import Slots, active_session, run_in_threads
from icecdc_core.table.failures import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig


def require_one_session(configs: Mapping[str, SyncConfig]) -> None:
    """Check that one Spark application can serve all of these parameters; secrets are neither resolved nor shown."""
    firsts: dict[str, tuple[str, object]] = {}
    for name, config in configs.items():
        catalog = dict(config.catalog_properties), config.warehouse and config.warehouse_location
        described = {config.catalog: ("catalog_properties and warehouse", catalog)}
        for key, (parameters, value) in {**described, "": ("spark_conf", dict(config.spark_conf))}.items():
            first, other = firsts.setdefault(key, (name, value))
            if other != value:
                raise ConfigError(
                    f"'{first}' and '{name}' share a Spark application, and their {parameters} differ (values not "
                    "shown)",
                    subject="index_file",
                    value=name,
                    remedy="give all indexes of the file the same ones, or another catalog another name",
                )


Job = Callable[["SparkSession", Any], Report]


def run_many(
    spark: SparkSession,
    job: Job,
    configs: Mapping[str, SyncConfig],
    *,
    command: str,
    parallel: int = 2,
    on_poll: Callable[[ManyReport], object] | None = None,
    on_failure: Callable[[str, dict[str, Any], str], object] = lambda name, failure, trace: None,
) -> ManyReport:
    """Run a job for each index, ``parallel`` of them at a time, each in a thread and a Spark session of its own.

    A polling sync runs in a loop for each index; ``parallel`` then limits the polls at a time. SIGTERM, and for polling
    runs an interrupt, stops all loops and begins no further syncs. ``on_poll`` gets the report so far, one call at a
    time. ``on_failure`` gets the failure of an index at once, because others may run for days, and the traceback of an
    unexpected one. A scheduler pool for each index shares the cores fairly, if ``spark.scheduler.mode`` is ``FAIR``.
    """
    require_one_session(configs)
    began = time.monotonic()
    polls = job is follow_changes and any(config.polls for config in configs.values())
    stop = StopRequest()
    for config in {config.catalog: config for config in configs.values()}.values():
        register_catalog(spark, config)
    runs: dict[str, _Run] = {}
    one_at_a_time = threading.Lock()

    def so_far() -> ManyReport:
        return ManyReport({name: run.report for name, run in runs.items()}, round(time.monotonic() - began, 3))

    def polled() -> None:
        if polls and on_poll is not None:
            with one_at_a_time:
                on_poll(so_far())

    for name, config in configs.items():
        runs[name] = _Run(name, command, job, config, new_job_session(spark), polled, on_failure)
    if job is follow_changes:
        with stop_on_sigterm(or_interrupt=polls) as stop:
            run_in_threads(spark, runs, Slots(parallel, stop))
    else:
        run_in_threads(spark, runs, Slots(parallel, stop))
    return so_far()


class _Run:
    """The job of one index, in a thread of its own."""

    def __init__(
        self,
        name: str,
        command: str,
        job: Job,
        config: SyncConfig,
        spark: SparkSession,
        polled: Callable[[], object],
        on_failure: Callable[[str, dict[str, Any], str], object],
    ) -> None:
        self.name = name
        self._command, self._work, self._config, self._spark = command, job, config, spark
        self._polled, self._on_failure, self._began = polled, on_failure, time.monotonic()
        self.report: Report | dict[str, Any] = RunReport(command, config.table, config.index, strategy="none")

    def __call__(self, slots: Slots) -> None:
        """Run the job and keep its report."""
        context = self._spark.sparkContext
        self._began = time.monotonic()
        try:
            with spark_errors(self._config):
                context.setJobGroup(f"icecdc {self.name}", f"{self._command} {self.name}")
                context.setLocalProperty("spark.scheduler.pool", self.name)
            with active_session(self._spark):
                self.report = self._result(slots)
        except Stopped:
            self.report = replace(self.report, stopped=True) if isinstance(self.report, RunReport) else self.report
        except BaseException as error:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        facts = {"job": self._command, **self._config.subject, "seconds": round(time.monotonic() - self._began, 3)}
        self.report = failure = failure_of(error) or failure_report(error, facts)
        trace = mask_secrets("".join(traceback.format_exception(error))) if state_of(error) == "failed" else ""
        self._on_failure(self.name, failure, trace)
        self._polled()

    def _poll_ended(self, report: RunReport) -> None:
        self.report = report
        self._polled()

    def _result(self, slots: Slots) -> Report:
        if self._work is not follow_changes:
            with slots.slot():
                return self._work(self._spark, self._config)

        def sync(spark: SparkSession, config: SyncConfig) -> RunReport:
            with slots.slot():
                return sync_changes(spark, config)

        return follow_changes(self._spark, self._config, sync=sync, on_poll=self._poll_ended, on_failure=self._failed)
