"""The wheel in an empty environment and an empty folder: services, a table of one's own, export, sync, validation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from icecdc_core.session.jars import iceberg_packages

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(900)]

TABLE = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.config("spark.jars.packages", sys.argv[1])
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop")
    .config("spark.sql.catalog.lake.warehouse", sys.argv[2])
    .getOrCreate()
)
for statement in sys.argv[3:]:
    spark.sql(statement)
"""
CREATE = (
    "CREATE NAMESPACE lake.shop",
    "CREATE TABLE lake.shop.orders (order_id BIGINT NOT NULL, status STRING) USING iceberg",
    "INSERT INTO lake.shop.orders VALUES (1, 'open'), (2, 'open'), (3, 'paid')",
)
CHANGE = (
    "DELETE FROM lake.shop.orders WHERE order_id = 3",
    "UPDATE lake.shop.orders SET status = 'paid' WHERE order_id = 1",
)
INDEXES = """
defaults:
  opensearch_url: {url}
  number_of_replicas: 0
  catalog_properties: {{type: hadoop, warehouse: "{warehouse}"}}
indexes:
  orders:
    table: lake.shop.orders
    identifier_columns: [order_id]
"""


class Installed:
    """An environment with the wheel, and an empty folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.bin = folder / "environment" / "bin"
        uv = [str(Path(sys.executable).with_name("uv")), "--quiet", "--no-config"]
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist")]
        sources = folder / "sources"
        sources.mkdir()
        for name in ("icecdc_core", "pyproject.toml", "README.md", "LICENSE"):
            (sources / name).symlink_to(ROOT / name)
        subprocess.run([*build, str(sources)], check=True, capture_output=True)
        wheel = next((folder / "dist").glob("*.whl"))
        subprocess.run([*uv, "venv", "--python", sys.executable, str(folder / "environment")], check=True)
        python = str(self.bin / "python")
        subprocess.run([*uv, "pip", "install", "--python", python, f"icecdc[local] @ {wheel.as_uri()}"], check=True)
        # The server and its data are this test's own, and nothing of the repository is found.
        others = ("ICECDC_", "PYSPARK_", "PYTHON", "SPARK_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        self.environment = {**kept, "XDG_STATE_HOME": str(folder / "state"), "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def run(self, *command: str) -> str:
        """Run a command of the environment in the folder; its output."""
        ended = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        return ended.stdout

    def report(self, command: str) -> dict[str, Any]:
        """The report of one index, after `icecdc COMMAND --file indexes.yml --json`."""
        last = self.run("icecdc", command, "--file", "indexes.yml", "--json").splitlines()[-1]
        report = json.loads(last)
        return report["indexes"]["orders"] if "indexes" in report else report

    def sql(self, *statements: str) -> None:
        """Run SQL with plain Spark."""
        self.run(
            "python", "-c", TABLE, iceberg_packages(pyspark.__version__)[0], str(self.work / "warehouse"), *statements
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    fresh = Installed(tmp_path_factory.mktemp("fresh"))
    yield fresh
    fresh.run("icecdc", "services", "down", "--remove-data")


def it_has_only_what_the_jobs_need(installed: Installed):
    code = "import importlib.util as u; print([n for n in ('IPython', 'tqdm') if u.find_spec(n)])"
    assert installed.run("python", "-c", code).strip() == "[]"


def it_goes_from_an_empty_folder_to_an_index_that_equals_a_table(installed: Installed):
    begin = time.monotonic()
    url = installed.run("icecdc", "services", "up").partition(" at ")[2].split()[0]
    (installed.work / "indexes.yml").write_text(INDEXES.format(url=url, warehouse=installed.work / "warehouse"))
    installed.sql(*CREATE)
    export = installed.report("export")
    installed.sql(*CHANGE)
    sync = installed.report("sync")
    validation = installed.report("validate")
    with urllib.request.urlopen(f"{url}/orders/_search?q=status:paid") as answer:
        hits = [hit["_id"] for hit in json.load(answer)["hits"]["hits"]]
    stopped = installed.run("icecdc", "services", "down")
    print(f"{time.monotonic() - begin:.0f} s from an empty folder to the end")
    assert (export["upserts"], sync["upserts"], sync["deletes"], validation["ok"]) == (3, 1, 1, True)
    assert (hits, stopped) == (["1"], "stopped\n")
