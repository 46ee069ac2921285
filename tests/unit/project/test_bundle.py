"""bundle.yml against what Databricks accepts, the notebooks and the index file; offline."""

import re
from pathlib import Path

import pytest
import yaml

from icecdc_core.config import SyncConfig
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.notebook import INDEX_FILE, INGEST_FILE, LIST_ONLY
from icecdc_core.session.jars import ICEBERG_RUNTIMES

ROOT = Path(__file__).parents[3]
BUNDLE = yaml.safe_load((ROOT / "bundle.yml").read_text())
JOBS = BUNDLE["resources"]["jobs"]
VARIABLES = {name: variable["default"] for name, variable in BUNDLE["variables"].items()}
PAGE = (ROOT / "docs" / "databricks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
class DescribeAJob:
    def it_is_accepted_by_databricks_own_model(self, job):
        from databricks.bundles.jobs import Job

        assert Job.from_dict(job).max_concurrent_runs == 1
        page = re.search(r"```yaml\n(variables:\n.*?)```", PAGE, re.DOTALL)[1]
        for cluster in (VARIABLES["cluster"], yaml.safe_load(page)["variables"]["cluster"]):
            given = {**job, "job_clusters": [{"job_cluster_key": "icecdc", "new_cluster": cluster}]}
            assert Job.from_dict(given).job_clusters[0].new_cluster.spark_version is not None

    def it_passes_texts_that_are_parameters_of_the_notebooks(self, job):
        of_the_job = {parameter["name"]: parameter["default"] for parameter in job["parameters"]}
        for each in job["tasks"]:
            task = (each["for_each_task"]["task"] if "for_each_task" in each else each)["notebook_task"]
            kind = IngestConfig if "kafka_ingest" in task["notebook_path"] else ExploreConfig
            passed = task["base_parameters"]
            known = kind.model_fields.keys() | ({INDEX_FILE, LIST_ONLY} if kind is ExploreConfig else {INGEST_FILE})
            assert {*passed, *of_the_job} - known == set()
            # A parameter of the job would win over the index that its task passes.
            assert passed.keys() & of_the_job.keys() == set()
            assert {type(value) for value in {**passed, **of_the_job}.values()} <= {str}


class DescribeTheBundle:
    def it_ships_schedules_paused_output_only_for_the_owner_and_an_index_file_that_can_be_loaded(self):
        assert {job["schedule"]["pause_status"] for job in JOBS.values() if "schedule" in job} == {"PAUSED"}
        given = [target.get("variables", {}).get("permissions", []) for target in BUNDLE["targets"].values()]
        assert [each for each in (VARIABLES["permissions"], *given) if each] == []
        path = ROOT / VARIABLES["index_file"].removeprefix("${workspace.file_path}/")
        assert list(SyncConfig.load_all(path)) == ["flights"]

    def it_names_a_databricks_runtime_with_the_spark_of_the_iceberg_runtime(self):
        for target in BUNDLE["targets"].values():
            values = VARIABLES | target.get("variables", {})
            spark = {"17.3.x-scala2.13": "4.0", "18.x-scala2.13": "4.1"}[values["spark_version"]]
            version = ICEBERG_RUNTIMES[spark]
            assert values["iceberg_runtime"] == f"org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:{version}"
            assert values["store_bundle"] == f"org.apache.iceberg:iceberg-aws-bundle:{version}"
