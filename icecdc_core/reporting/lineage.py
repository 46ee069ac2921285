"""OpenLineage: the events of a run, from table to index and from topic to table."""

from __future__ import annotations

import logging
import os
import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    symlinks_dataset,
)
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from icecdc_core.config import SyncConfig
from icecdc_core.config.values import split_table_name
from icecdc_core.errors import IcecdcError
from icecdc_core.logs import event
from icecdc_core.reporting.exit_states import reason_without_values
from icecdc_core.secrets import mask_secrets, shorten
from icecdc_core.table.iceberg_table import IcebergTable

if TYPE_CHECKING:
    from icecdc_core.reporting.instrumentation import JobRun

# As OpenLineage's Java client does: these schemes have no slash before the path, and one name for all their spellings.
_OBJECT_STORES = frozenset({"s3", "gs", "abfss", "wasbs"})
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PRODUCER = "https://pypi.org/project/icecdc"
_LONGEST_WAIT, _SHORT_WAIT = 3.0, 0.1
_WAITING_CALLS = 1000


def location_name(location: str) -> tuple[str, str]:
    """Return namespace and name of a dataset: `s3a://lake/shop/orders` gives `s3://lake` and `shop/orders`."""
    parts = urlsplit(location)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    if scheme in ("", "file"):
        return "file", parts.path.rstrip("/")
    name = parts.path.strip("/") if scheme in _OBJECT_STORES else parts.path.rstrip("/")
    user, _, host = parts.netloc.rpartition("@")
    # A user with a password is no part of the name; the container of an Azure store is.
    return f"{scheme}://{host if ':' in user else parts.netloc}", name


def index_name(opensearch_url: str) -> str:
    """Return the namespace of an index's dataset; its name is the alias that readers use."""
    url = urlsplit(opensearch_url)
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"opensearch://{host}:{url.port or _DEFAULT_PORTS.get(url.scheme, 9200)}"


def topic_namespace(bootstrap_servers: str) -> str:
    """Return the namespace of a topic's dataset: the first server."""
    return f"kafka://{bootstrap_servers.split(',')[0].strip().rpartition('://')[2]}"


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


_Datasets = tuple[list[InputDataset], list[OutputDataset]]


class Lineage:
    """The events of one run: START once it works, RUNNING after each batch of an ingest, and one for how it ended.

    START waits until the table is known, so every event has the datasets. A poll that finds nothing sends nothing.
    A thread sends them, one after the other: a server that is away neither fails a run nor delays it much.
    """

    _was_late = False

    def __init__(self, run: JobRun[Any]) -> None:
        self._run = run
        self._client = OpenLineageClient()
        self._started_at = _now()
        self._begun = False
        self._problem = ""
        self._calls: queue.Queue[Callable[[], object] | None] = queue.Queue(_WAITING_CALLS)
        # A daemon, because the end of the process waits for other threads.
        self._thread = threading.Thread(target=self._work, name="icecdc-OpenLineage", daemon=True)
        job_type = job_type_job.JobTypeJobFacet(
            processingType="STREAMING" if run.is_endless else "BATCH", integration="ICECDC", jobType=run.job.upper()
        )
        self._job = Job(
            os.environ.get("OPENLINEAGE_NAMESPACE") or "default",
            f"icecdc.{run.job}.{run.config.subject['index']}",
            facets={"jobType": job_type},
        )
        self._thread.start()

    def _work(self) -> None:
        while (function := self._calls.get()) is not None:
            try:
                function()
            except Exception as error:  # whatever a client raises must not end the thread
                self._problem = f"{type(error).__name__}: {error}"

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Send START, if it was not sent."""
        if not self._begun:
            self._begun = True
            self._send(RunState.START, facts, self._started_at)

    def batch_ended(self, facts: Mapping[str, Any]) -> None:
        """Send what a batch wrote, if the run may go on for days."""
        if self._run.is_endless:
            self._send(RunState.RUNNING, facts, _now())

    def ended(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """Send how the run ended, and wait until it is sent; only briefly if the server was late before."""
        if error is not None or self._begun or not getattr(self._run.config, "polls", False):
            self.begin(facts)
            state = RunState.FAIL if isinstance(error, Exception) else RunState.ABORT
            self._send(RunState.COMPLETE if error is None else state, facts, _now(), error)
        with suppress(queue.Full):
            self._calls.put_nowait(lambda: self._client.close(1.0))
            self._calls.put_nowait(None)
        was_late = Lineage._was_late
        self._thread.join(_SHORT_WAIT if was_late else _LONGEST_WAIT)
        Lineage._was_late = self._thread.is_alive()
        if Lineage._was_late and not was_late:
            self._problem = self._problem or f"no answer within {_LONGEST_WAIT:.0f} s"
        if self._problem:
            problem = shorten(mask_secrets(self._problem), 300)
            event(f"cannot reach a monitoring system: OpenLineage: {problem}", logging.WARNING)

    def _send(self, state: RunState, facts: Mapping[str, Any], at: str, error: BaseException | None = None) -> None:
        known = dict(facts)
        facets: dict[str, RunFacet] = {}
        if parent := parent_facet(os.environ.get("OPENLINEAGE_PARENT_ID", "")):
            facets["parent"] = parent
        if error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(reason_without_values(error), "python")

        def emit() -> None:
            of_index = isinstance(self._run.config, SyncConfig)
            inputs, outputs = self._of_index(state, known) if of_index else self._of_ingest(known)
            run = Run(str(uuid.UUID(self._run.run_id)), facets=facets)
            self._client.emit(
                RunEvent(
                    eventType=state,
                    eventTime=at,
                    run=run,
                    job=self._job,
                    inputs=inputs,
                    outputs=outputs,
                    producer=_PRODUCER,
                )
            )

        with suppress(queue.Full):
            self._calls.put_nowait(emit)

    def _of_ingest(self, facts: Mapping[str, Any]) -> _Datasets:
        namespace = topic_namespace(getattr(self._run.config, "bootstrap_servers", ""))
        written = []
        for name, total in sorted((facts.get("tables") or {}).items()):
            # A table may be gone, or its catalog is, or Spark.
            with suppress(IcecdcError, PySparkException, Py4JError):
                location = IcebergTable(self._run.spark, name).metadata().location
                counts = {"rowCount": total.get("rows"), "fileCount": total.get("files")}
                written.append(_output(*_table(name, location, total.get("snapshot_id")), counts))
        return [InputDataset(namespace, topic) for topic in facts.get("topics") or ()], written

    def _of_index(self, state: RunState, facts: Mapping[str, Any]) -> _Datasets:
        config, source = self._run.config, self._run.opened_source
        index = index_name(config.opensearch_url), config.index
        read = []
        if source is not None:
            snapshot_id = facts.get("to_snapshot_id") or facts.get("snapshot_id") or source.head
            namespace, name, facets = _table(config.table, source.metadata.location, snapshot_id)
            read.append(InputDataset(namespace, name, facets=facets))
        if self._run.job == "validate":
            read.append(InputDataset(*index))
        if config.dry_run or (self._run.job == "validate" and not facts.get("repaired")):
            return read, []
        counts = {"rowCount": facts.get("repaired") or facts.get("upserts"), "size": facts.get("bytes")}
        return read, [_output(*index, {}, counts if state is RunState.COMPLETE else {})]


def _table(table: str, location: str, snapshot_id: int | None) -> tuple[str, str, dict[str, Any]]:
    """Namespace, name and facets of a table's dataset."""
    catalog, *parts = split_table_name(table)
    symlink = symlinks_dataset.Identifier(catalog, ".".join(parts), "TABLE")
    facets: dict[str, Any] = {"symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[symlink])}
    if snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(snapshot_id))
    return *location_name(location), facets


def _output(namespace: str, name: str, facets: dict[str, Any], counts: dict[str, Any]) -> OutputDataset:
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(**counts)
    return OutputDataset(
        namespace, name, facets=facets, outputFacets={"outputStatistics": statistics} if counts else {}
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
