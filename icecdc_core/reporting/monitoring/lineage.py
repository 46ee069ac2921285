"""OpenLineage: the events of a run, from table to index and from topic to table."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    RunFacet,
    data_quality_assertions_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
)
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from icecdc_core.config import SyncConfig
from icecdc_core.dependencies import installed_version
from icecdc_core.errors import IcecdcError
from icecdc_core.logs import event
from icecdc_core.reporting.failure_reasons import reason_without_values
from icecdc_core.reporting.monitoring.background import BackgroundCalls
from icecdc_core.reporting.monitoring.lineage_datasets import Dataset, index_dataset, table_dataset, topic_datasets
from icecdc_core.reporting.monitoring.observers import ObservedRun, Observer
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.source import Source

BACKGROUND = BackgroundCalls("OpenLineage")
PRODUCER = "https://pypi.org/project/icecdc"
_Datasets = tuple[list[InputDataset], list[OutputDataset]]


class Lineage(Observer):
    """The events of one run: START once it works, RUNNING after each batch of an ingest, and one for how it ended.

    The events of a run are sent with the time at which things happened. START waits until the table is known, so every
    event has the datasets. A poll that finds nothing sends nothing.
    """

    def __init__(self) -> None:
        self.background = BACKGROUND
        self._client = OpenLineageClient()
        self._begun = False
        self._source: Source | None = None

    def started(self, run: ObservedRun) -> None:
        """Remember the run."""
        self._observed, self._started_at, config = run, _now(), run.config
        self._spark_version = run.spark.version  # later Spark may have died
        self._is_endless = getattr(config, "trigger", "") == "continuous"
        self._openlineage_job = Job(
            os.environ.get("OPENLINEAGE_NAMESPACE") or "default",
            f"icecdc.{run.job}.{run.labels['index']}",
            facets={
                "jobType": job_type_job.JobTypeJobFacet(
                    processingType="STREAMING" if self._is_endless else "BATCH",
                    integration="ICECDC",
                    jobType=run.job.upper(),
                )
            },
        )

    def opened(self, source: Source) -> None:
        """Remember the table."""
        self._source = source

    def stage_started(self, name: str) -> None:
        """Send START with the first stage that does something."""
        if name != "check":
            self._begin({})

    def batch_ended(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """Send what a batch wrote, if the run may go on for days."""
        if error is None and self._is_endless:
            self._send(RunState.RUNNING, facts)

    def ended(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """Send how the run ended."""
        config = self._observed.config
        idle = error is None and not self._begun and isinstance(config, SyncConfig) and config.polls
        if not idle:
            self._begin(facts)
            state = RunState.FAIL if isinstance(error, Exception) else RunState.ABORT
            self._send(RunState.COMPLETE if error is None else state, facts, error)
        self.background.call(lambda: self._client.close(1.0))

    def _begin(self, facts: Mapping[str, Any]) -> None:
        if not self._begun:
            self._begun = True
            self._send(RunState.START, facts)

    def _send(self, state: RunState, facts: Mapping[str, Any], error: BaseException | None = None) -> None:
        datasets = self._datasets(state, dict(facts))
        facets = self._run_facets()
        if error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(reason_without_values(error), "python")
        time = self._started_at if state is RunState.START else _now()

        def emit() -> None:
            inputs, outputs = datasets()
            run_event = RunEvent(
                eventType=state,
                eventTime=time,
                run=Run(str(uuid.UUID(self._observed.run_id)), facets=facets),
                job=self._openlineage_job,
                inputs=inputs,
                outputs=outputs,
                producer=PRODUCER,
            )
            self._client.emit(run_event)

        self.background.call(emit)

    def _run_facets(self) -> dict[str, RunFacet]:
        engine = processing_engine_run.ProcessingEngineRunFacet(
            version=self._spark_version, name="spark", openlineageAdapterVersion=installed_version("icecdc")
        )
        parent = parent_facet(os.environ.get("OPENLINEAGE_PARENT_ID", ""))
        return {"processing_engine": engine, **({"parent": parent} if parent else {})}

    def _datasets(self, state: RunState, facts: Mapping[str, Any]) -> Callable[[], _Datasets]:
        """What makes the datasets of an event, in the background: those of an ingest are read from the catalog."""
        config = self._observed.config
        if isinstance(config, SyncConfig):
            opened = self._of_index(config, state, facts)
            return lambda: opened
        return lambda: self._of_ingest(facts)

    def _of_ingest(self, facts: Mapping[str, Any]) -> _Datasets:
        topics = topic_datasets(getattr(self._observed.config, "bootstrap_servers", ""), facts.get("topics") or ())
        tables = facts.get("tables") or {}
        written = [self._written_dataset(name, total) for name, total in sorted(tables.items())]
        return [topic.as_input() for topic in topics], [table for table in written if table is not None]

    def _of_index(self, config: SyncConfig, state: RunState, facts: Mapping[str, Any]) -> _Datasets:
        table, source = None, self._source
        if source is not None:
            snapshot_id = facts.get("to_snapshot_id") or facts.get("snapshot_id") or source.head
            table = table_dataset(config.table, source.metadata, config, snapshot_id)
        read = [table.as_input()] if table is not None else []
        writes = self._observed.job != "validate" or facts.get("repaired")
        if self._observed.job == "validate":
            read.append(index_dataset(config, source).as_input(**_assertion(facts)))
        if not writes or config.dry_run:
            return read, []
        index: Dataset = index_dataset(config, source, table)
        statistics = {}
        if state is RunState.COMPLETE:
            rows = facts.get("repaired") or facts.get("upserts")
            statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=rows, size=facts.get("bytes")
            )
        return read, [index.as_output(**statistics)]

    def _written_dataset(self, name: str, total: Mapping[str, Any]) -> OutputDataset | None:
        try:
            metadata = IcebergTable(self._observed.spark, name).metadata()
        except (IcecdcError, PySparkException, Py4JError):  # it is gone, or its catalog is, or Spark
            return None
        dataset = table_dataset(name, metadata, self._observed.config, total.get("snapshot_id"))
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=total.get("rows"), fileCount=total.get("files")
        )
        return dataset.as_output(outputStatistics=statistics)


def parent_facet(parent_id: str) -> parent_run.ParentRunFacet | None:
    """Return the facet of the parent run."""
    if not parent_id:
        return None
    try:
        namespace, name, run_id = parent_id.rsplit("/", 2)
        return parent_run.ParentRunFacet(parent_run.Run(run_id), parent_run.Job(namespace, name))
    except ValueError:
        event("OPENLINEAGE_PARENT_ID is not namespace/job/run id", logging.WARNING)
        return None


def _assertion(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict of a validation."""
    if "ok" not in facts:
        return {}
    verdict = data_quality_assertions_dataset.Assertion("documents equal rows", bool(facts["ok"]))
    facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=[verdict])
    return {"dataQualityAssertions": facet}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
