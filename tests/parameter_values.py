"""A value for each parameter that is not its default: with it, a test sees whether the parameter arrives."""

from __future__ import annotations

from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig

OF_AN_INDEX = {"table": "lake.ns.t", "opensearch_url": "https://search:9200"}
NEEDED: dict[type[ParameterModel], dict[str, str]] = {
    SyncConfig: OF_AN_INDEX,
    ExploreConfig: OF_AN_INDEX,
    IngestConfig: {"job": "j", "bootstrap_servers": "h:9092", "topics": "t", "table": "lake.ns.t"},
}
# Texts that are not the default, as a job passes them.
_PATHS = ("log_path", "metrics_folder", "report_path", "warehouse")
_CERTIFICATES = ("opensearch_ca_certs", "opensearch_client_cert", "opensearch_client_key")
_WORDS = (
    "alias",
    "branch",
    "document_id",
    "index",
    "job",
    "op_field",
    "opensearch_aws_region",
    "ordering_column",
    "index_column",
    "routing",
)
_USERS = ("opensearch_username", "schema_registry_username")
_COLUMNS = ("columns", "identifier_columns", "pipeline_fields", "sort_columns")
_URLS = ("metrics_url", "opensearch_url", "schema_registry_url")
OTHER: dict[str, str] = {
    **dict.fromkeys((*_PATHS, *_CERTIFICATES), "/tmp/other"),
    **dict.fromkeys((*_WORDS, *_USERS, "query", "route_field", "topic_pattern", "topics"), "other"),
    **dict.fromkeys(_COLUMNS, "a,b"),
    **dict.fromkeys(_URLS, "http://other:8000"),
    **dict.fromkeys(("table", "commit_log_table", "dead_letter_table"), "lake.other.t"),
    **dict.fromkeys(("opensearch_password", "schema_registry_password"), "env:PASSWORD"),
    **dict.fromkeys(("start_from", "starting_offsets"), "latest"),
    "bootstrap_servers": "other:9092",
    "catalog_properties": '{"type": "rest", "uri": "https://catalog"}',
    "embed": '{"v": {"text": "title", "function": "a.b:c", "model": "1", "dimension": 3}}',
    "embed_table": "lake.other.v",
    "format": "dms",
    "from_snapshot": "-3",
    "kafka_options": '{"client.id": "me"}',
    "mapping": '{"properties": {"a": {"type": "keyword"}}}',
    "metadata_columns": "topic",
    "namespace": "lake.other",
    "nest": '{"language": {"table": "lake.ns.l", "on": "l.id = t.language_id"}}',
    "partition_by": "days(ts)",
    "positions_index": "other-positions",
    "route_by": "topic",
    "routing": "region",
    "routes": '{"lake.ns.a": "a.*"}',
    "row_filter": "id > 3",
    "select": '["id"]',
    "settings": '{"refresh_interval": "5s"}',
    "spark_conf": '{"spark.driver.memory": "4g"}',
    "table_properties": '{"a": "b"}',
    "to_snapshot": "-1",
}


def _other(field: FieldInfo) -> str:
    """Another value of a boolean, a number or a choice."""
    if field.annotation is bool:
        return str(not field.default).lower()
    choices = get_args(field.annotation)
    return next(choice for choice in choices if choice != field.default) if choices else str(field.default + 3)


# What a parameter is only accepted with.
WITH: dict[str, dict[str, str]] = {
    "key_format": {"identifier_columns": "id"},
    "mode": {"identifier_columns": "id"},
    "namespace": {"route_by": "topic", "table": ""},
    "op_field": {"mode": "upsert", "identifier_columns": "id"},
    "opensearch_client_key": {"opensearch_client_cert": "/tmp/cert.pem"},
    "opensearch_password": {"opensearch_username": "me"},
    "opensearch_username": {"opensearch_password": "env:PASSWORD"},
    "ordering_column": {"mode": "upsert", "identifier_columns": "id"},
    "route_by": {"namespace": "lake.ns", "table": ""},
    "route_field": {"route_by": "field", "namespace": "lake.ns", "table": ""},
    "routes": {"route_by": "regex", "table": ""},
    "schema_registry_password": {"schema_registry_username": "me", "schema_registry_url": "http://registry:8081"},
    "schema_registry_username": {
        "schema_registry_password": "env:PASSWORD",
        "schema_registry_url": "http://registry:8081",
    },
    "topic_pattern": {"topics": ""},
}
OTHER |= {
    name: _other(field)
    for kind in NEEDED
    for name, field in kind.model_fields.items()
    if name not in OTHER and (field.annotation in (bool, int, float) or get_origin(field.annotation) is Literal)
}
