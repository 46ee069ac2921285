"""The parameters cells of the shipped notebooks: short to read, and every parameter can be passed."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.ingest import IngestConfig
from icecdc_core.notebook import read_parameters
from tests.dbutils import Dbutils

FOLDER = Path(__file__).parents[3] / "notebooks"
KINDS: dict[str, type[ParameterModel]] = {
    "00_setup": SyncConfig,
    "10_initial_export": SyncConfig,
    "20_incremental_cdc": SyncConfig,
    "30_validation": SyncConfig,
    "40_kafka_ingest": IngestConfig,
}
NEEDED: dict[type[ParameterModel], dict[str, str]] = {
    SyncConfig: {"table": "lake.ns.t", "opensearch_url": "https://search:9200"},
    IngestConfig: {"job": "j", "bootstrap_servers": "h:9092", "topics": "t", "table": "lake.ns.t"},
}
# A value that is not the default, as a job passes it.
OTHER: dict[str, str] = {
    "alias": "t",
    "auto_create": "true",
    "bootstrap_servers": "other:9092",
    "branch": "audit",
    "bulk_bytes": "1000000",
    "bulk_connections": "5",
    "catalog_properties": '{"type": "rest", "uri": "https://catalog"}',
    "change_mode": "snapshot",
    "column_case": "lower",
    "columns": "a,b",
    "commit_log_table": "lake.ns.log",
    "compact_min_files": "7",
    "dead_letter_table": "lake.ns.dead",
    "distribution": "hash",
    "dry_run": "true",
    "evolve_schema": "true",
    "export_group_bytes": "1000000",
    "fail_on_difference": "true",
    "format": "dms",
    "identifier_columns": "a,b",
    "index": "other",
    "isolation_level": "read_uncommitted",
    "job": "other",
    "kafka_options": '{"client.id": "me"}',
    "key_format": "json",
    "lease_seconds": "90",
    "log_path": "/tmp/log.jsonl",
    "mapping": '{"properties": {"a": {"type": "keyword"}}}',
    "max_polls": "3",
    "max_records_per_batch": "5",
    "max_rejected_documents": "5",
    "max_seconds": "9",
    "metadata_columns": "topic",
    "metrics_folder": "/tmp/metrics",
    "metrics_url": "http://gateway:9091",
    "mode": "upsert",
    "namespace": "lake.other",
    "number_of_replicas": "0",
    "number_of_shards": "4",
    "on_duplicate_identifier": "last",
    "on_history_gap": "reexport",
    "on_lost_offsets": "continue",
    "on_schema_change": "reexport",
    "on_table_reset": "continue",
    "op_field": "op",
    "opensearch_aws_region": "eu-west-1",
    "opensearch_ca_certs": "/tmp/ca.pem",
    "opensearch_client_cert": "/tmp/cert.pem",
    "opensearch_client_key": "/tmp/key.pem",
    "opensearch_password": "env:PASSWORD",
    "opensearch_url": "https://other:9200",
    "opensearch_username": "me",
    "opensearch_verify_certs": "false",
    "ordering_column": "at",
    "partition_by": "days(ts)",
    "pipeline_fields": "vector",
    "poll_interval_seconds": "2.5",
    "positions_index": "other-positions",
    "repair": "true",
    "report_path": "/tmp/report.json",
    "request_timeout_seconds": "5",
    "retry_timeout_seconds": "7",
    "route_by": "topic",
    "route_field": "kind",
    "routes": '{"lake.ns.a": "a.*"}',
    "row_filter": "id > 3",
    "row_hash": "keyed",
    "schema_registry_password": "env:PASSWORD",
    "schema_registry_url": "http://registry:8081",
    "schema_registry_username": "me",
    "select": '["id"]',
    "settings": '{"refresh_interval": "5s"}',
    "sort_columns": "a",
    "spark_conf": '{"spark.driver.memory": "4g"}',
    "start_from": "latest",
    "starting_offsets": "latest",
    "table": "lake.other.t",
    "table_concurrency": "2",
    "table_properties": '{"a": "b"}',
    "target_file_bytes": "1000000",
    "target_lag": "10s",
    "tombstones": "ignore",
    "topic_pattern": "shop.*",
    "topics": "other",
    "trigger": "continuous",
    "trigger_interval_seconds": "9",
    "unknown_fields": "reject",
    "validate_at": "position",
    "warehouse": "/tmp/warehouse",
}
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
# Three are reserved, and the last one has a single value.
WITHOUT_OTHER = {"routing", "index_column", "nest", "opensearch_aws_service"}

each_notebook = pytest.mark.parametrize("notebook", KINDS)
each_parameter = pytest.mark.parametrize(
    ("notebook", "name"),
    [
        (notebook, parameter.name)
        for notebook, kind in KINDS.items()
        for parameter in kind.parameters()
        if parameter.name not in WITHOUT_OTHER
    ],
)


@cache
def _loaded(notebook: str) -> Any:
    return load_notebook_node(str(FOLDER / f"{notebook}.ipynb"))


def _read(notebook: str) -> Any:
    return deepcopy(_loaded(notebook))


def _code_cells(node: Any) -> list[Any]:
    return [cell for cell in node.cells if cell.cell_type == "code"]


def _namespace(node: Any, **more: Any) -> dict[str, Any]:
    """The globals of a notebook whose cells before `read_parameters` ran, as IPython keeps them."""
    sources = [cell.source for cell in _code_cells(node)]
    before = sources[: next(number for number, source in enumerate(sources) if "read_parameters" in source)]
    namespace: dict[str, Any] = {"In": ["", *before, "read_parameters(globals())"], **more}
    for source in before:
        exec(source, namespace)
    return namespace


def _given(notebook: str, name: str) -> dict[str, str]:
    return {**NEEDED[KINDS[notebook]], **WITH.get(name, {}), name: OTHER[name]}


@each_notebook
class DescribeTheParametersCells:
    def it_shows_the_few_that_most_runs_set(self, notebook):
        _, shown, *_ = _code_cells(_read(notebook))
        assert 5 <= len(shown.source.splitlines()) <= 7

    def it_hides_the_cell_with_all_of_them(self, notebook):
        everything, *_ = _code_cells(_read(notebook))
        assert (everything.metadata.tags, everything.metadata.jupyter.source_hidden) == (["parameters"], True)

    def it_shows_the_lines_of_the_hidden_cell(self, notebook):
        everything, shown, *_ = _code_cells(_read(notebook))
        assert set(shown.source.splitlines()) <= set(everything.source.splitlines())

    def it_has_a_place_for_passed_values_after_both(self, notebook):
        cells = _read(notebook).cells
        places = [number for number, cell in enumerate(cells) if "injected-parameters" in cell.metadata.get("tags", [])]
        assert places == [3]


class DescribePassedParameters:
    @each_parameter
    def it_reaches_the_run_through_papermill(self, notebook, name):
        given = _given(notebook, name)
        node = parameterize_notebook(_read(notebook), given)
        actual = read_parameters(_namespace(node), KINDS[notebook])
        assert getattr(actual, name) == getattr(KINDS[notebook](**given), name)
        assert getattr(actual, name) != KINDS[notebook].model_fields[name].get_default(call_default_factory=True)

    @each_parameter
    def it_reaches_the_run_through_a_widget(self, notebook, name):
        given = _given(notebook, name)
        node = _read(notebook)
        actual = read_parameters(_namespace(node, dbutils=Dbutils(**given)), KINDS[notebook])
        assert getattr(actual, name) == getattr(KINDS[notebook](**given), name)

    @each_notebook
    def it_is_what_a_person_writes_into_the_shown_cell(self, notebook):
        kind = KINDS[notebook]
        node = _read(notebook)
        _, shown, *_ = _code_cells(node)
        for name, value in NEEDED[kind].items():
            shown.source = shown.source.replace(f'{name}: str = ""', f'{name}: str = "{value}"')
        actual = read_parameters(_namespace(node), kind)
        assert {name: getattr(actual, name) for name in NEEDED[kind]} == {
            name: getattr(kind(**NEEDED[kind]), name) for name in NEEDED[kind]
        }
