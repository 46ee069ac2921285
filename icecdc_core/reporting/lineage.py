"""OpenLineage: the events of a run, from table to index and from topic to table."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    RunFacet,
    catalog_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    symlinks_dataset,
)
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from icecdc_core.config import SyncConfig
from icecdc_core.config.values import split_table_name
from icecdc_core.dependencies import installed_version
from icecdc_core.documents.mapping import index_mapping
from icecdc_core.errors import IcecdcError
from icecdc_core.logs import event
from icecdc_core.reporting.exit_states import reason_without_values
from icecdc_core.reporting.observers import BackgroundCalls, ObservedRun, Observer
from icecdc_core.secrets import is_reference, redact
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.source import Source

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig
    from icecdc_core.config.model import ParameterModel
    from icecdc_core.table.metadata import TableMetadata
    from icecdc_core.table.source import Source


# As OpenLineage's Java client does: these schemes have no slash before the path, and one name for all their spellings.
_OBJECT_STORES = frozenset({"s3", "gs", "abfss", "wasbs"})
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Dataset:
    """A dataset and what is known about it."""

    namespace: str
    name: str
    facets: Mapping[str, DatasetFacet] = field(default_factory=dict)

    def as_input(self, **facets: Any) -> InputDataset:
        """The dataset as one that is read."""
        return InputDataset(self.namespace, self.name, facets=dict(self.facets), inputFacets=facets)

    def as_output(self, **facets: Any) -> OutputDataset:
        """The dataset as one that is written."""
        return OutputDataset(self.namespace, self.name, facets=dict(self.facets), outputFacets=facets)


def table_dataset(table: str, metadata: TableMetadata, config: ParameterModel, snapshot_id: int | None) -> Dataset:
    """Return the dataset of an Iceberg table."""
    namespace, name = location_name(metadata.location)
    catalog, *parts = split_table_name(table)
    properties = _shown_properties(config)
    symlink = symlinks_dataset.Identifier(_catalog_namespace(properties, catalog), ".".join(parts), "TABLE")
    facets: dict[str, DatasetFacet] = {
        "schema": schema_dataset.SchemaDatasetFacet(fields=_schema_fields(metadata.schema)),
        "symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[symlink]),
        "catalog": catalog_dataset.CatalogDatasetFacet(
            framework="iceberg",
            type=properties.get("type") or "custom",
            name=catalog,
            warehouseUri=properties.get("warehouse"),
            source="spark",
        ),
    }
    if snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(snapshot_id))
    return Dataset(namespace, name, facets)


def index_dataset(config: SyncConfig, source: Source | None = None) -> Dataset:
    """Return the dataset of an index: `opensearch://host:port` and the alias that readers use."""
    url = urlsplit(config.opensearch_url)
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    namespace = f"opensearch://{host}:{url.port or _DEFAULT_PORTS.get(url.scheme, 9200)}"
    facets: dict[str, DatasetFacet] = {}
    if source is not None:
        properties = index_mapping(source.schema, config.mapping, config.pipeline_fields)["properties"]
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name, properties.get(name, {}).get("type", "object"))
            for name in source.schema.names
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    return Dataset(namespace, config.index, facets)


def topic_datasets(bootstrap_servers: str, topics: Iterable[str]) -> list[Dataset]:
    """Return the datasets of Kafka topics: `kafka://host:port` of the first server, and the topic."""
    server = bootstrap_servers.split(",")[0].strip().rpartition("://")[2]
    return [Dataset(f"kafka://{server}", topic) for topic in topics]


def location_name(location: str) -> tuple[str, str]:
    """Return namespace and name of a dataset that lies at a location.

    Examples: `s3a://lake/shop/orders` gives `s3://lake` and `shop/orders`; `/data/orders` gives `file` and
    `/data/orders`.
    """
    parts = urlsplit(location)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    if scheme in ("", "file"):
        return "file", parts.path.rstrip("/")
    name = parts.path.strip("/") if scheme in _OBJECT_STORES else parts.path.rstrip("/")
    user, _, host = parts.netloc.rpartition("@")
    # A user with a password is no part of the name; the container of an Azure store is.
    return f"{scheme}://{host if ':' in user else parts.netloc}", name


def _shown_properties(config: ParameterModel) -> dict[str, str]:
    """The catalog's type, address and warehouse, if they are neither secrets nor references to them."""
    given = dict(config.catalog_properties) or {"type": "jdbc", "warehouse": config.warehouse_location}
    wanted = {name: given[name] for name in ("type", "uri", "warehouse") if given.get(name)}
    # A user, a password or a token may also be in an address and in the query of one.
    return {
        name: value
        for name, value in wanted.items()
        if not is_reference(value) and not {"@", "?"} & set(value) and redact(name, value) == value
    }


def _catalog_namespace(properties: Mapping[str, str], catalog: str) -> str:
    """What distinguishes tables of one name in several catalogs: the catalog's address, else its warehouse."""
    uri = properties.get("uri", "")
    if uri.startswith("thrift://"):
        return f"hive://{urlsplit(uri).netloc}"
    if properties.get("type") in ("rest", "nessie") and uri:
        return uri
    if warehouse := properties.get("warehouse"):
        namespace, path = location_name(warehouse)
        return f"file:{path}" if namespace == "file" else f"{namespace}/{path.lstrip('/')}"
    return catalog


def _schema_fields(schema: Mapping[str, Any]) -> list[schema_dataset.SchemaDatasetFacetFields]:
    return [_schema_field(each) for each in schema["fields"]]


def _schema_field(each: Mapping[str, Any]) -> schema_dataset.SchemaDatasetFacetFields:
    kind = each["type"]
    nested = kind if isinstance(kind, dict) else {}
    parts = [{"name": part, "type": nested[part]} for part in ("element", "key", "value") if part in nested]
    return schema_dataset.SchemaDatasetFacetFields(
        each["name"],
        {"list": "array"}.get(nested["type"], nested["type"]) if nested else kind,
        each.get("doc"),
        fields=[_schema_field(child) for child in nested.get("fields", parts)],
    )


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
        index: Dataset = index_dataset(config, source)
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
    return datetime.now(UTC).isoformat(timespec="milliseconds")
