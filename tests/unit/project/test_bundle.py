"""bundle.yml against what Databricks accepts, the notebooks and the index file; offline."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from icecdc_core.config import SyncConfig
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.notebook import INDEX_FILE, LIST_ONLY

ROOT = Path(__file__).parents[3]
BUNDLE = yaml.safe_load((ROOT / "bundle.yml").read_text())
JOBS = BUNDLE["resources"]["jobs"]
VARIABLES = {name: variable["default"] for name, variable in BUNDLE["variables"].items()}
PAGE = (ROOT / "docs" / "databricks.md").read_text(encoding="utf-8")
CLUSTERS = {
    "default": VARIABLES["cluster"],
    "of the page": yaml.safe_load(re.search(r"```yaml\n(variables:\n.*?)```", PAGE, re.DOTALL)[1])["variables"][
        "cluster"
    ],
}

each_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


def tasks(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for task in job["tasks"]:
        yield (task["for_each_task"]["task"] if "for_each_task" in task else task)["notebook_task"]


class DescribeTheBundle:
    @each_job
    def it_is_accepted_by_databricks_own_model(self, job):
        from databricks.bundles.jobs import Job

        assert Job.from_dict(job).max_concurrent_runs == 1

    @pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
    def it_runs_on_clusters_that_the_model_accepts(self, cluster):
        from databricks.bundles.jobs import Job

        job = {**JOBS["validation"], "job_clusters": [{"job_cluster_key": "icecdc", "new_cluster": cluster}]}
        assert Job.from_dict(job).job_clusters[0].new_cluster.spark_version is not None

    @each_job
    def it_passes_texts_that_are_parameters_of_the_notebooks(self, job):
        of_the_job = {parameter["name"]: parameter["default"] for parameter in job["parameters"]}
        for task in tasks(job):
            kind = IngestConfig if "kafka_ingest" in task["notebook_path"] else ExploreConfig
            passed = task["base_parameters"]
            known = kind.model_fields.keys() | ({INDEX_FILE, LIST_ONLY} if kind is ExploreConfig else set())
            assert {*passed, *of_the_job} - known == set()
            # A parameter of the job would win over the index that its task passes.
            assert passed.keys() & of_the_job.keys() == set()
            assert {type(value) for value in {**passed, **of_the_job}.values()} <= {str}

    def it_deploys_an_index_file_that_can_be_loaded(self):
        import jsonschema

        path = ROOT / VARIABLES["index_file"].removeprefix("${workspace.file_path}/")
        schema = json.loads((ROOT / "icecdc_core" / "config" / "indexes.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(path.read_text()))
        assert list(SyncConfig.load_all(path)) == ["flights"]
