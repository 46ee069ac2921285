"""The datasets of OpenLineage: Iceberg tables, OpenSearch indexes and Kafka topics, named as its spec says.

A table is named by its location, as OpenLineage's Spark integration does, so the job that writes a table and the sync
that reads it meet at one node. The spec has no OpenSearch; an index is named as the spec names servers and ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    catalog_dataset,
    dataset_version_dataset,
    schema_dataset,
    symlinks_dataset,
)
from openlineage.client.facet_v2 import column_lineage_dataset as columns
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType

from icecdc_core.config.parsing.names import split_table_name
from icecdc_core.documents.mapping import index_mapping
from icecdc_core.secrets import is_reference, redact
from icecdc_core.table.expressions.field_origins import FieldOrigin

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from icecdc_core.config import SyncConfig
    from icecdc_core.config.model import ParameterModel
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
        "schema": schema_dataset.SchemaDatasetFacet(fields=_schema_fields(metadata.schema())),
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


def index_dataset(config: SyncConfig, source: Source | None = None, table: Dataset | None = None) -> Dataset:
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
        if table is not None:
            facets["columnLineage"] = _column_lineage(source, table)
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


def _schema_fields(schema: Schema) -> list[schema_dataset.SchemaDatasetFacetFields]:
    return [_schema_field(each) for each in schema.fields]


def _schema_field(each: NestedField) -> schema_dataset.SchemaDatasetFacetFields:
    kind = each.field_type
    children: tuple[NestedField, ...] = ()
    if isinstance(kind, StructType):
        name, children = "struct", kind.fields
    elif isinstance(kind, ListType):
        name, children = "array", (kind.element_field,)
    elif isinstance(kind, MapType):
        name, children = "map", (kind.key_field, kind.value_field)
    else:
        name = str(kind)
    return schema_dataset.SchemaDatasetFacetFields(
        each.name, name, each.doc, fields=[_schema_field(child) for child in children]
    )


def _column_lineage(source: Source, table: Dataset) -> columns.ColumnLineageDatasetFacet:
    if source.projection is not None:
        origins = dict(source.projection.origins)
    else:
        origins = {name: FieldOrigin(frozenset({name}), is_identity=True) for name in source.columns}
    fields = {name: columns.Fields(_direct(table, origin)) for name, origin in origins.items()}
    condition = columns.Transformation("INDIRECT", "FILTER", masking=False)
    conditions = [_column(table, name, condition) for name in sorted(source.filter_columns)]
    return columns.ColumnLineageDatasetFacet(fields=fields, dataset=conditions)


def _direct(table: Dataset, origin: FieldOrigin) -> list[columns.InputField]:
    subtype = "IDENTITY" if origin.is_identity else "TRANSFORMATION"
    step = columns.Transformation("DIRECT", subtype, masking=origin.is_masked)
    return [_column(table, name, step) for name in sorted(origin.columns)]


def _column(table: Dataset, name: str, step: columns.Transformation) -> columns.InputField:
    return columns.InputField(table.namespace, table.name, name, [step])
