"""bundle.yml against what Databricks accepts, the notebooks, and pyproject.toml; offline."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
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

ROOT = Path(__file__).parents[3]
BUNDLE = yaml.safe_load((ROOT / "bundle.yml").read_text())
JOBS = BUNDLE["resources"]["jobs"]
CLUSTER = BUNDLE["variables"]["cluster"]["default"]
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
SETUP, INGEST, EXPLORE = "00_setup.ipynb", "40_kafka_ingest.ipynb", "50_explore.ipynb"
SYNC_JOBS = {name: job for name, job in JOBS.items() if name not in ("kafka_ingest", "explore", "smoke")}
SYNC_NOTEBOOKS = [name for name in NOTEBOOKS if name != INGEST]
KINDS = {**dict.fromkeys(SYNC_NOTEBOOKS, SyncConfig), EXPLORE: ExploreConfig, INGEST: IngestConfig}
KNOWN = {notebook: {parameter.name: parameter for parameter in kind.parameters()} for notebook, kind in KINDS.items()}
EACH_INDEX = "{{tasks.indexes.values.indexes}}"


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

    @each_job
    def it_runs_a_job_once_at_a_time_and_its_tasks_one_after_the_other(self, job):
        assert job["max_concurrent_runs"] == 1
        before = [None, *[task["task_key"] for task in job["tasks"]][:-1]]
        actual = [(task.get("depends_on") or [{"task_key": None}])[0]["task_key"] for task in job["tasks"]]
        assert actual == before

    def it_ships_schedules_paused_and_shows_output_only_to_the_owner(self):
        assert [job["schedule"]["pause_status"] for job in JOBS.values() if "schedule" in job] == ["PAUSED"] * 3
        given = {name: target.get("variables", {}).get("permissions", []) for name, target in BUNDLE["targets"].items()}
        assert (BUNDLE["variables"]["permissions"]["default"], *given.values()) == ([], [], [], [], [])

    @each_sync_job
    def it_runs_each_task_for_each_index_of_the_file(self, job):
        assert {task["for_each_task"]["inputs"] for task in job["tasks"][1:]} == {EACH_INDEX}
        given = [_given(job, task) for task in [*_tasks(job)][1:]]
        assert {(parameters["index_file"], parameters["index"]) for parameters in given} == {
            ("${var.index_file}", "{{input}}")
        }

    @each_sync_job
    def it_reads_no_table_to_list_the_indexes(self, job, monkeypatch):
        passed = {**_given(job, job["tasks"][0]), INDEX_FILE: str(ROOT / "indexes.yml")}
        node = load_notebook_node(str(ROOT / "notebooks" / SETUP))
        for name in ("open_services", "open_spark"):
            monkeypatch.setattr(f"icecdc_core.notebook.{name}", lambda config: pytest.fail("it goes on after the list"))
        namespace = {"dbutils": Dbutils(**{name: re.sub(r"\$\{.*}", "", value) for name, value in passed.items()})}
        with pytest.raises(NotebookExit, match="flights"):
            exec("\n".join(cell.source for cell in node.cells if cell.cell_type == "code"), namespace)

    def it_deploys_an_index_file_that_can_be_loaded(self):
        folder, _, name = BUNDLE["variables"]["index_file"]["default"].partition("/")
        assert folder == "${workspace.file_path}"
        assert list(SyncConfig.load_all(ROOT / name)) == ["flights"]
        schema = json.loads((ROOT / "icecdc_core" / "config" / "indexes.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(yaml.safe_load((ROOT / name).read_text()))

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

    def it_uses_each_variable_and_no_other(self):
        text = (ROOT / "bundle.yml").read_text()
        assert set(re.findall(r"\$\{var\.(\w+)}", text)) == set(BUNDLE["variables"])

    def it_has_a_list_of_ingests_whose_fields_are_the_inputs_of_a_task(self):
        fields = {field for entry in json.loads(BUNDLE["variables"]["ingests"]["default"]) for field in entry}
        used = set(re.findall(r"{{input\.(\w+)}}", (ROOT / "bundle.yml").read_text()))
        assert used == fields


class DescribeTheNotebooksOfTheBundle:
    @each_task
    def it_passes_only_parameters_that_the_notebook_has(self, task):
        notebook = task["notebook_task"]
        known = _parameters(Path(notebook["notebook_path"]).name)
        assert set(notebook["base_parameters"]) - set(known) == set()

    @each_job
    def it_passes_the_index_by_the_task_because_a_parameter_of_the_job_would_win(self, job):
        of_tasks = set().union(*(task["notebook_task"]["base_parameters"] for task in _tasks(job)))
        assert {parameter["name"] for parameter in job["parameters"]} & of_tasks == set()

    @each_task
    def it_passes_texts_only(self, task):
        assert {type(value) for value in task["given"].values()} == {str}


class DescribeTheParametersOfTheNotebooks:
    @each_notebook
    def it_has_only_parameters_of_the_configuration(self, notebook):
        others = {SETUP: {INDEX_FILE, LIST_ONLY}, INGEST: set()}.get(notebook, {INDEX_FILE})
        assert set(_parameters(notebook)) - set(KNOWN[notebook]) == others

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


class DescribeTheVersions:
    @pytest.mark.parametrize("target", [*BUNDLE["targets"]])
    def it_names_a_databricks_runtime_with_the_spark_of_the_iceberg_runtime(self, target):
        sparks = {"17.3.x-scala2.13": "4.0", "18.x-scala2.13": "4.1"}
        values = {name: variable["default"] for name, variable in BUNDLE["variables"].items()}
        values |= BUNDLE["targets"][target].get("variables", {})
        spark = sparks[values["spark_version"]]
        version = ICEBERG_RUNTIMES[spark]
        assert values["iceberg_runtime"] == f"org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:{version}"
        assert values["store_bundle"] == f"org.apache.iceberg:iceberg-aws-bundle:{version}"

    def it_runs_locally_on_a_spark_the_session_has_a_runtime_for(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        pinned = next(r for r in project["optional-dependencies"]["local"] if r.startswith("pyspark=="))
        assert ".".join(pinned.removeprefix("pyspark==").split(".")[:2]) in ICEBERG_RUNTIMES


def _python_to_json(literal: str) -> str:
    return {"True": "true", "False": "false"}.get(literal, literal)
