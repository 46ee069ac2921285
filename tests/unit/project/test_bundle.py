"""bundle.yml against what Databricks accepts, the notebooks, and pyproject.toml; offline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import nbformat
import pytest
import yaml
from databricks.bundles.jobs import Job
from papermill.inspection import _infer_parameters
from papermill.iorw import load_notebook_node

from icecdc_core.config import SyncConfig
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.notebook import INDEX_FILE, LIST_ONLY
from icecdc_core.session.jars import ICEBERG_RUNTIMES
from tests.dbutils import Dbutils, NotebookExit

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
BUNDLE = yaml.safe_load((ROOT / "bundle.yml").read_text())
JOBS = BUNDLE["resources"]["jobs"]
CLUSTER = BUNDLE["variables"]["cluster"]["default"]
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
SETUP, INGEST, EXPLORE = "00_setup.ipynb", "40_kafka_ingest.ipynb", "50_explore.ipynb"
SYNC_JOBS = {name: job for name, job in JOBS.items() if name not in ("kafka_ingest", "explore", "smoke")}
SCHEDULED = {"incremental_cdc": "schedule", "validation": "validation_schedule", "kafka_ingest": "schedule"}
# Those that a person starts. A scheduled run is skipped while the one before it still runs.
QUEUED = {"initial_export", "explore", "smoke"}
SYNC_NOTEBOOKS = [name for name in NOTEBOOKS if name != INGEST]
KINDS = {**dict.fromkeys(SYNC_NOTEBOOKS, SyncConfig), EXPLORE: ExploreConfig, INGEST: IngestConfig}
KNOWN = {notebook: {parameter.name: parameter for parameter in kind.parameters()} for notebook, kind in KINDS.items()}
# Describe the document of one index: they come from the file that `index_file` names, or from Python.
FROM_INDEX_FILE = {"alias", "select", "mapping", "settings", "pipeline_fields", "routing", "index_column", "nest"}
EACH_INDEX = "{{tasks.indexes.values.indexes}}"
# Notebook parameters that no job passes: their defaults are right for a job, or they make sense only for a person.
DEFAULTED = {
    "branch": "the main branch is what a job follows",
    "bulk_bytes": "a tuning knob",
    "bulk_connections": "a tuning knob",
    "columns": "in the index file",
    "dead_letter_table": "beside each table, unless a person chooses another place",
    "dry_run": "a job is there to write",
    "export_group_bytes": "a tuning knob",
    "identifier_columns": "in the index file",
    "lease_seconds": "a tuning knob",
    "list_only": "for the first task of a job only",
    "log_path": "the log of the job cluster is kept by Databricks",
    "max_polls": "the schedule repeats, a run syncs once",
    "max_rejected_documents": "a job that loses documents must fail",
    "metrics_folder": "a cluster has no textfile collector",
    "metrics_url": "not every workspace has a Pushgateway",
    "number_of_replicas": "a property of the cluster, set with an index template",
    "number_of_shards": "a tuning knob",
    "on_duplicate_identifier": "duplicates must fail until a person has looked",
    "on_history_gap": "setup and export do not depend on the history",
    "on_schema_change": "setup and export do not depend on the history",
    "opensearch_aws_region": "for Amazon's service; then there is no password",
    "opensearch_aws_service": "for Amazon's service",
    "opensearch_ca_certs": "clusters trust the system's certificates",
    "opensearch_client_cert": "files on the cluster are a decision of its owner",
    "opensearch_client_key": "files on the cluster are a decision of its owner",
    "opensearch_verify_certs": "a job must verify",
    "positions_index": "one for all tables",
    "report_path": "the report is the notebook's result",
    "request_timeout_seconds": "a tuning knob",
    "retry_timeout_seconds": "a tuning knob",
    "spark_conf": "the job cluster has its own",
    "start_from": "a one-time decision of a person",
    "table": "in the index file",
    "target_lag": "the schedule repeats, a run syncs once",
    "warehouse": "belongs to the embedded catalog",
    # Of an ingest.
    "column_case": "a decision for good, made with the table",
    "commit_log_table": "beside the tables",
    "compact_min_files": "many tables have their own maintenance",
    "distribution": "a tuning knob",
    "isolation_level": "aborted records must not be seen",
    "max_records_per_batch": "a tuning knob",
    "max_seconds": "a scheduled run ends by itself",
    "key_format": "text is right for almost all producers",
    "metadata_columns": "a decision for good, made with the table",
    "ordering_column": "another one for each table belongs in a job of its own",
    "partition_by": "belongs to each table",
    "row_hash": "a decision for tables whose writers are not trusted",
    "sample_rows": "enough for a person",
    "max_snapshots": "enough for a person",
    "schema_registry_password": "not every registry has users",
    "schema_registry_username": "not every registry has users",
    "sort_columns": "belongs to each table",
    "starting_offsets": "a one-time decision of a person",
    "table_concurrency": "a tuning knob",
    "table_properties": "belongs to each table",
    "target_file_bytes": "a property of the table",
    "tombstones": "the safe way is the default",
    "topic_pattern": "topics are listed",
    "trigger_interval_seconds": "for continuous runs",
    "unknown_fields": "another choice belongs in a job of its own",
}


def _tasks(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for task in job["tasks"]:
        yield task["for_each_task"]["task"] if "for_each_task" in task else task


def _given(job: dict[str, Any], task: dict[str, Any]) -> dict[str, str]:
    """The parameters that a notebook gets: those of its task, and those of the job, which win."""
    own = task["notebook_task"]["base_parameters"]
    return {**own, **{parameter["name"]: parameter["default"] for parameter in job["parameters"]}}


def _all_tasks() -> list[tuple[str, dict[str, Any]]]:
    """Each task, with all the parameters that its notebook gets."""
    return [
        (f"{name}.{task['task_key']}", {**task, "given": _given(job, task)})
        for name, job in JOBS.items()
        for task in _tasks(job)
    ]


def _parameters(notebook: str) -> dict[str, Any]:
    """The parameters of a notebook as papermill sees them."""
    node = load_notebook_node(str(ROOT / "notebooks" / notebook))
    return {parameter.name: parameter for parameter in _infer_parameters(node)}


each_task = pytest.mark.parametrize("task", [task for _, task in _all_tasks()], ids=[n for n, _ in _all_tasks()])
each_sync_job = pytest.mark.parametrize("job", SYNC_JOBS.values(), ids=SYNC_JOBS)
each_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS)


class DescribeTheBundle:
    @each_job
    def it_is_accepted_by_databricks_own_model(self, job):
        assert Job.from_dict(job).name == job["name"]

    def it_is_refused_there_when_a_field_is_misspelt(self):
        with pytest.raises((TypeError, ValueError)):
            Job.from_dict({**JOBS["initial_export"], "max_concurent_runs": 1})

    @each_job
    def it_runs_a_job_once_at_a_time(self, job):
        assert job["max_concurrent_runs"] == 1

    @each_task
    def it_retries(self, task):
        assert task["max_retries"] >= 1

    def it_ships_schedules_paused(self):
        actual = [job["schedule"]["pause_status"] for job in JOBS.values() if "schedule" in job]
        assert actual == ["PAUSED", "PAUSED", "PAUSED"]

    def it_has_a_schedule_for_the_sync_and_one_for_the_validation(self):
        found = {name: job["schedule"]["quartz_cron_expression"] for name, job in JOBS.items() if "schedule" in job}
        assert found == {name: f"${{var.{variable}}}" for name, variable in SCHEDULED.items()}

    def it_skips_a_scheduled_run_while_the_one_before_it_runs(self):
        assert {name for name, job in JOBS.items() if job["queue"]["enabled"]} == QUEUED
        assert QUEUED & {*SCHEDULED} == set()

    def it_shows_a_trigger_that_may_replace_the_schedule(self):
        text = (ROOT / "bundle.yml").read_text()
        lines = re.search(r"^( +)# trigger:\n(?:\1#   .*\n)+", text, re.MULTILINE)[0].splitlines()
        trigger = yaml.safe_load("\n".join(line.strip().removeprefix("# ") for line in lines))["trigger"]
        without = {name: value for name, value in JOBS["incremental_cdc"].items() if name != "schedule"}
        assert Job.from_dict({**without, "trigger": trigger}).trigger.table_update.table_names[0] == "main.shop.orders"

    @each_job
    def it_reports_failures_and_long_runs(self, job):
        events = {"on_failure", "on_duration_warning_threshold_exceeded"}
        assert (set(job["email_notifications"]), set(job["webhook_notifications"])) == (events, events)
        assert [rule["metric"] for rule in job["health"]["rules"]] == ["RUN_DURATION_SECONDS"]

    @each_job
    def it_leaves_the_permissions_to_the_workspace(self, job):
        assert job["permissions"] == "${var.permissions}"

    def it_shows_the_output_of_a_job_only_to_its_owner_by_default(self):
        given = {name: target.get("variables", {}).get("permissions", []) for name, target in BUNDLE["targets"].items()}
        assert (BUNDLE["variables"]["permissions"]["default"], *given.values()) == ([], [], [], [], [])

    @pytest.mark.parametrize("name", ["initial_export", "validation"])
    def it_validates_at_the_end(self, name):
        assert [*_tasks(JOBS[name])][-1]["notebook_task"]["notebook_path"] == "notebooks/30_validation.ipynb"

    def it_ends_a_scheduled_sync_without_a_validation(self):
        assert [*_tasks(JOBS["incremental_cdc"])][-1]["notebook_task"]["notebook_path"].endswith(
            "20_incremental_cdc.ipynb"
        )

    @each_sync_job
    def it_runs_each_task_for_each_index_of_the_file(self, job):
        assert {task["for_each_task"]["inputs"] for task in job["tasks"][1:]} == {EACH_INDEX}
        given = [_given(job, task) for task in [*_tasks(job)][1:]]
        assert {(parameters["index_file"], parameters["index"]) for parameters in given} == {
            ("${var.index_file}", "{{input}}")
        }

    @each_sync_job
    def it_lists_the_indexes_of_the_file_first(self, job):
        first = job["tasks"][0]
        assert (first["task_key"], first["notebook_task"]["notebook_path"]) == ("indexes", "notebooks/00_setup.ipynb")
        assert first["notebook_task"]["base_parameters"]["index"] == ""

    @each_sync_job
    def it_reads_no_table_to_list_the_indexes(self, job, monkeypatch):
        passed = {**_given(job, job["tasks"][0]), INDEX_FILE: str(ROOT / "indexes.yml")}
        node = load_notebook_node(str(ROOT / "notebooks" / SETUP))
        for name in ("open_services", "open_spark"):
            monkeypatch.setattr(f"icecdc_core.notebook.{name}", lambda config: pytest.fail("it goes on after the list"))
        namespace = {"dbutils": Dbutils(**{name: re.sub(r"\$\{.*}", "", value) for name, value in passed.items()})}
        with pytest.raises(NotebookExit, match="flights"):
            exec("\n".join(cell.source for cell in node.cells if cell.cell_type == "code"), namespace)

    @each_sync_job
    def it_has_the_list_of_indexes_only_where_it_was_made_before(self, job):
        assert all({"task_key": "indexes"} in task["depends_on"] for task in job["tasks"][1:])

    def it_deploys_an_index_file_that_can_be_loaded(self):
        folder, _, name = BUNDLE["variables"]["index_file"]["default"].partition("/")
        assert folder == "${workspace.file_path}"
        assert list(SyncConfig.load_all(ROOT / name)) == ["flights"]
        schema = json.loads((ROOT / "icecdc_core" / "config" / "indexes.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(yaml.safe_load((ROOT / name).read_text()))

    def it_ingests_for_each_entry_of_a_list(self):
        inputs = {task["for_each_task"]["inputs"] for task in JOBS["kafka_ingest"]["tasks"]}
        assert inputs == {"${var.ingests}"}

    @each_job
    def it_runs_the_tasks_one_after_the_other(self, job):
        before = [None, *[task["task_key"] for task in job["tasks"]][:-1]]
        actual = [(task.get("depends_on") or [{"task_key": None}])[0]["task_key"] for task in job["tasks"]]
        assert actual == before

    @each_job
    def it_uses_a_single_user_cluster_because_maven_libraries_need_one(self, job):
        assert {cluster["new_cluster"] for cluster in job["job_clusters"]} == {"${var.cluster}"}
        assert CLUSTER["data_security_mode"] == "SINGLE_USER"

    def it_sets_no_extensions_because_attached_libraries_come_too_late_for_them(self):
        assert [name for name in CLUSTER["spark_conf"] if "extensions" in name] == []

    def it_describes_a_cluster_that_databricks_own_model_accepts(self):
        job = {**JOBS["smoke"], "job_clusters": [{"job_cluster_key": "icecdc", "new_cluster": CLUSTER}]}
        assert Job.from_dict(job).job_clusters[0].new_cluster.spark_version is not None

    def it_shows_in_its_documentation_a_cluster_that_the_model_accepts(self):
        page = (ROOT / "docs" / "databricks.md").read_text(encoding="utf-8")
        cluster = yaml.safe_load(re.search(r"```yaml\n(variables:\n.*?)```", page, re.DOTALL)[1])["variables"][
            "cluster"
        ]
        job = {**JOBS["smoke"], "job_clusters": [{"job_cluster_key": "icecdc", "new_cluster": cluster}]}
        assert Job.from_dict(job).job_clusters[0].new_cluster.policy_id == "0123456789ABCDEF"
        assert cluster["data_security_mode"] == CLUSTER["data_security_mode"]

    @each_task
    def it_brings_the_wheel_the_iceberg_runtime_and_the_client_of_the_store(self, task):
        maven = [{"maven": {"coordinates": f"${{var.{name}}}"}} for name in ("iceberg_runtime", "store_bundle")]
        assert task["libraries"] == [{"whl": "./dist/*.whl"}, *maven]

    def it_has_targets_for_development_for_spark_4_0_for_staging_and_for_production(self):
        modes = {name: target["mode"] for name, target in BUNDLE["targets"].items()}
        development = {"dev": "development", "spark40": "development"}
        assert modes == {**development, "staging": "production", "prod": "production"}

    @pytest.mark.parametrize("name", ["staging", "prod"])
    def it_runs_in_staging_and_production_as_a_service_principal_from_a_shared_folder(self, name):
        target = BUNDLE["targets"][name]
        assert target["workspace"]["root_path"].startswith("/Workspace/")
        assert target["run_as"] == {"service_principal_name": "${var.service_principal}"}

    @pytest.mark.parametrize("name", BUNDLE["variables"])
    def it_describes_each_variable_with_an_example_or_a_default(self, name):
        variable = BUNDLE["variables"][name]
        assert len(variable["description"]) > 20
        assert "Example" in variable["description"] or variable["default"]

    def it_uses_each_variable_and_no_other(self):
        text = (ROOT / "bundle.yml").read_text()
        assert set(re.findall(r"\$\{var\.(\w+)}", text)) == set(BUNDLE["variables"])

    def it_has_a_list_of_ingests_whose_fields_are_the_inputs_of_a_task(self):
        fields = {field for entry in json.loads(BUNDLE["variables"]["ingests"]["default"]) for field in entry}
        used = set(re.findall(r"{{input\.(\w+)}}", (ROOT / "bundle.yml").read_text()))
        assert used == fields


class DescribeTheNotebooksOfTheBundle:
    def it_uses_each_notebook_and_no_other(self):
        used = {task["notebook_task"]["notebook_path"] for _, task in _all_tasks()}
        assert used == {f"notebooks/{name}" for name in NOTEBOOKS}

    @each_task
    def it_passes_only_parameters_that_the_notebook_has(self, task):
        notebook = task["notebook_task"]
        known = _parameters(Path(notebook["notebook_path"]).name)
        assert set(notebook["base_parameters"]) - set(known) == set()

    @each_job
    def it_passes_to_all_notebooks_of_a_job_only_parameters_that_some_of_them_have(self, job):
        notebooks = {Path(task["notebook_task"]["notebook_path"]).name for task in _tasks(job)}
        known = set().union(*(_parameters(notebook) for notebook in notebooks))
        assert {parameter["name"] for parameter in job["parameters"]} - known == set()

    @each_job
    def it_passes_the_index_by_the_task_because_a_parameter_of_the_job_would_win(self, job):
        of_tasks = set().union(*(task["notebook_task"]["base_parameters"] for task in _tasks(job)))
        assert {parameter["name"] for parameter in job["parameters"]} & of_tasks == set()

    @each_task
    def it_passes_or_explains_each_parameter_of_the_notebook(self, task):
        known = _parameters(Path(task["notebook_task"]["notebook_path"]).name)
        assert set(known) - set(task["given"]) - set(DEFAULTED) == set()

    @each_task
    def it_passes_texts_only(self, task):
        assert {type(value) for value in task["given"].values()} == {str}

    def it_explains_only_what_is_left_out_somewhere(self):
        passed = [set(task["given"]) for _, task in _all_tasks()]
        assert set(DEFAULTED) & set.intersection(*passed) == set()


class DescribeTheParametersOfTheNotebooks:
    @each_notebook
    def it_has_only_parameters_of_the_configuration(self, notebook):
        others = {SETUP: {INDEX_FILE, LIST_ONLY}, INGEST: set()}.get(notebook, {INDEX_FILE})
        assert set(_parameters(notebook)) - set(KNOWN[notebook]) == others

    @pytest.mark.parametrize("notebook", SYNC_NOTEBOOKS)
    def it_begins_with_the_index_file(self, notebook):
        assert list(_parameters(notebook))[:3] == [INDEX_FILE, "index", "table"]

    @each_notebook
    def it_documents_each_parameter_with_type_and_help(self, notebook):
        found = _parameters(notebook).values()
        assert [parameter.name for parameter in found if not parameter.help or not parameter.inferred_type_name] == []

    @each_notebook
    def it_has_the_configuration_s_defaults(self, notebook):
        given = {name: json.loads(_python_to_json(found.default)) for name, found in _parameters(notebook).items()}
        if notebook == INGEST:
            needed = {"job": "j", "bootstrap_servers": "127.0.0.1:9092", "topics": "t", "table": "lake.ns.t"}
            assert IngestConfig(**{**given, **needed}) == IngestConfig(**needed)
        else:
            assert (given.pop(INDEX_FILE), given.pop(LIST_ONLY, False)) == ("", False)
            kind = KINDS[notebook]
            assert kind(**{**given, "table": "lake.ns.t"}) == kind(table="lake.ns.t")

    def it_has_each_parameter_in_some_notebook_or_only_in_the_index_file(self):
        in_notebooks = set().union(*(set(_parameters(n)) for n in SYNC_NOTEBOOKS)) - {INDEX_FILE}
        assert set(KNOWN[SYNC_NOTEBOOKS[0]]) - in_notebooks == FROM_INDEX_FILE
        assert set(_parameters(INGEST)) == set(KNOWN[INGEST])

    @each_notebook
    def it_is_small_stripped_and_stable(self, notebook):
        node = nbformat.read(ROOT / "notebooks" / notebook, as_version=nbformat.NO_CONVERT)
        nbformat.validate(node)
        assert (node.nbformat, node.nbformat_minor, node.metadata.kernelspec.name) == (4, 5, "python3")
        assert 6 <= len(node.cells) <= 12
        assert all(not cell.get("outputs") for cell in node.cells)
        assert len({cell.id for cell in node.cells}) == len(node.cells)


class DescribeTheVersions:
    def it_names_an_iceberg_runtime_that_the_session_knows(self):
        coordinate = BUNDLE["variables"]["iceberg_runtime"]["default"]
        known = [f"org.apache.iceberg:iceberg-spark-runtime-{s}_2.13:{v}" for s, v in ICEBERG_RUNTIMES.items()]
        assert coordinate in known

    @pytest.mark.parametrize("target", [*BUNDLE["targets"]])
    def it_names_a_databricks_runtime_with_the_spark_of_the_iceberg_runtime(self, target):
        sparks = {"17.3.x-scala2.13": "4.0", "18.x-scala2.13": "4.1"}
        values = {name: variable["default"] for name, variable in BUNDLE["variables"].items()}
        values |= BUNDLE["targets"][target].get("variables", {})
        spark = sparks[values["spark_version"]]
        version = ICEBERG_RUNTIMES[spark]
        assert values["iceberg_runtime"] == f"org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:{version}"
        assert values["store_bundle"] == f"org.apache.iceberg:iceberg-aws-bundle:{version}"

    def it_runs_on_18_lts_unless_the_target_says_17_3(self):
        assert BUNDLE["variables"]["spark_version"]["default"] == "18.x-scala2.13"
        assert BUNDLE["targets"]["spark40"]["variables"]["spark_version"] == "17.3.x-scala2.13"

    def it_refuses_a_cli_that_deletes_the_results_of_demo_and_lab(self):
        required = BUNDLE["bundle"]["databricks_cli_version"].removeprefix(">= ")
        # The release notes of 0.256.0: "we no longer delete `dist`, `build`, ..." before a wheel is built.
        assert tuple(map(int, required.split("."))) >= (0, 256, 0)

    def it_builds_the_wheel_of_pyproject(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert BUNDLE["bundle"]["name"] == project["name"] == next(iter(BUNDLE["artifacts"]))

    def it_builds_the_wheel_from_the_source_distribution_without_what_an_earlier_build_left(self):
        assert BUNDLE["artifacts"]["icecdc"]["build"] == "python -m build"

    def it_runs_locally_on_a_spark_the_session_has_a_runtime_for(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        pinned = next(r for r in project["optional-dependencies"]["local"] if r.startswith("pyspark=="))
        assert ".".join(pinned.removeprefix("pyspark==").split(".")[:2]) in ICEBERG_RUNTIMES


def _python_to_json(literal: str) -> str:
    return {"True": "true", "False": "false"}.get(literal, literal)
