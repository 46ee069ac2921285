"""The Python and SQL blocks of README.md and docs/, run on tables of this test; docs/tutorial.md with what it shows."""

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.jobs.export import export_table
from icecdc_core.runs.dead_letters import SCHEMA
from tests.checks.doc_blocks import Block, all_blocks, blocks_of, commands_of, words_of
from tests.given.kafka_topics import Topic
from tests.speed.fast_java import small_spark

ROOT = Path(__file__).parents[3]
RUN = [block for block in all_blocks() if block.language in ("python", "sql") and not block.mark]
RUN = [block for block in RUN if not block.title]  # the files of the tutorial
PAGES = list(dict.fromkeys(block.page for block in RUN))
TABLES = {
    "orders": ("order_id BIGINT NOT NULL, status STRING", "(1, 'open'), (2, 'paid')"),
    "books": ("isbn STRING NOT NULL, title STRING, price DECIMAL(6, 2), stock INT", "('1', 'Moby-Dick', 12.5, 4)"),
}
DEAD_LETTERS = "lake.shop.icecdc_dead_letters"
GIVEN = {"catalog_properties", "warehouse", "opensearch_url", "positions_index", "bootstrap_servers", "spark_conf"}
"""The addresses that a page prints; those of the test take their place."""


class Addresses(ast.NodeTransformer):
    """Puts the addresses of the test into the parameters that a snippet makes."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        called = ast.unparse(node.func)
        if called in ("SyncConfig", "ExploreConfig", "IngestConfig", "SyncConfig.load", "SyncConfig.load_all"):
            node.keywords = [each for each in node.keywords if each.arg not in GIVEN]
            given = ast.Name("ingest_addresses" if called == "IngestConfig" else "addresses", ast.Load())
            node.keywords.append(ast.keyword(None, given))
        return node


def run(block: Block, names: dict[str, Any]) -> None:
    tree = ast.fix_missing_locations(Addresses().visit(ast.parse(block.text)))
    exec(compile(tree, block.id, "exec"), names)


@pytest.fixture
def addresses(opensearch_url, make_config) -> dict[str, Any]:
    catalog = {name: getattr(make_config(), name) for name in ("warehouse", "catalog_properties")}
    return {"opensearch_url": opensearch_url, "positions_index": "positions-docs", **catalog}


@pytest.fixture
def shop(spark, opensearch, addresses):
    """The tables that the pages write about, with their indexes; returns the parameters of the orders."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    for table, (columns, rows) in TABLES.items():
        spark.sql(f"CREATE TABLE lake.shop.{table} ({columns}) USING iceberg")
        spark.sql(f"INSERT INTO lake.shop.{table} VALUES {rows}")
    spark.sql("UPDATE lake.shop.orders SET status = 'paid' WHERE order_id = 1")
    yield SyncConfig(table="lake.shop.orders", identifier_columns=["order_id"], **addresses)
    for table in (*(f"lake.shop.{table}" for table in TABLES), DEAD_LETTERS):
        spark.sql(f"DROP TABLE IF EXISTS {table}")
    params = {"expand_wildcards": "all", "ignore_unavailable": "true"}
    opensearch.indices.delete(index="orders-*,books-*,positions-docs", params=params)


@pytest.mark.parametrize("page", PAGES)
def it_runs_as_it_is_printed(page, spark, shop, addresses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "\n".join(block.text for block in RUN if block.page == page)
    if re.search(r"\b(status|replay_dead_letters)\(", text) or DEAD_LETTERS in text:
        export_table(spark, shop)
        spark.createDataFrame([], SCHEMA).writeTo(DEAD_LETTERS).createOrReplace()
    files = [block for block in all_blocks() if block.page == page and block.language == "yaml" and not block.mark]
    if files:
        Path("indexes.yml").write_text(files[0].text, encoding="utf-8")
    snapshots = spark.sql("SELECT snapshot_id FROM lake.shop.orders.snapshots ORDER BY committed_at").collect()
    first, last = (row[0] for row in snapshots)
    names = {"spark": spark, "config": shop, "SyncConfig": SyncConfig, "addresses": addresses}
    names |= {"start_snapshot_id": first, "end_snapshot_id": last}
    for block in (each for each in RUN if each.page == page):
        if block.language == "sql":
            for statement in filter(str.strip, block.text.split(";")):
                spark.sql(statement).collect()
        else:
            run(block, names)


def it_ingests_as_the_kafka_page_says(spark, shop, addresses, kafka):
    topic = Topic(kafka)
    topic.send({"order_id": 3, "status": "open"})
    (block,) = (each for each in all_blocks() if each.page == "docs/kafka.md" and each.language == "python")
    names: dict[str, Any] = {"ingest_addresses": {"bootstrap_servers": kafka}}
    names["ingest_addresses"] |= {name: addresses[name] for name in ("warehouse", "catalog_properties")}
    text = re.sub(r'(topics|job)="orders"', rf'\1="{topic.name}"', block.text)
    run(Block(block.page, block.line, "python", "", text), names)
    assert (names["report"].rows_written, spark.table("lake.shop.orders").count()) == (1, 3)


PRINTED = "http://127.0.0.1:9200"
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PARTS = [each for each in blocks_of(PAGE.partition("\n## How to\n")[0], "docs/tutorial.md") if each.mark != "not run"]
FILES = {block.title: block.text for block in PARTS if block.title}
COMMANDS = [part for block in PARTS if not block.title for part in commands_of(block)]


def plain(output: str) -> object:
    """An output without what differs from run to run: seconds, the width of columns, the order of JSON's fields."""
    if output.startswith("{"):
        return json.loads(output)
    return re.sub(r"\d+\.\d\b", "N", re.sub(r"[ \t]+", " ", output)).strip()


UV = [str(Path(sys.executable).with_name("uv")), "--quiet", "--no-config"]
OTHERS = ("ICECDC_", "PYSPARK_", "PYTHON", "SPARK_")  # what would bring the checkout, or the Spark of the tests


@pytest.fixture
def wheel(tmp_path):
    """The wheel, which has every file of the package and no other; beside it an empty environment."""
    sources = tmp_path / "sources"
    sources.mkdir()  # so that nothing is written into the repository
    for name in ("icecdc_core", "demo", "tests", "pyproject.toml", "README.md", "LICENSE"):
        (sources / name).symlink_to(ROOT / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(sources)]
    subprocess.run(build, check=True, capture_output=True)
    wheel = next(tmp_path.glob("*.whl"))
    files = [path for path in (ROOT / "icecdc_core").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == {path.relative_to(ROOT).as_posix() for path in files}
    assert {path.suffix for path in files} <= {".py", ".java", ".json", ".typed"}
    subprocess.run([*UV, "venv", "--python", sys.executable, str(tmp_path / "environment")], check=True)
    (tmp_path / "work").mkdir()
    return wheel


def install(environment, *wanted):
    """Install into an environment; returns the variables of a process in it."""
    subprocess.run([*UV, "pip", "install", "--python", str(environment / "bin" / "python"), *wanted], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    return {**kept, "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def run_in(work, environment, *words):
    ended = subprocess.run(["/usr/bin/env", *words], cwd=work, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


def it_runs_init_sync_status_and_a_notebook_from_the_wheel(wheel, spark, sql, make_config, tmp_path):
    """With the packages that are installed here, and one Spark: the kernel runs the commands that need it."""
    sql("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg", "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    config, environment, work = make_config(), tmp_path / "environment", tmp_path / "work"
    variables = install(environment, "--no-deps", str(wheel))
    (site,) = environment.glob("lib/*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth, of the checkout, is not read
    init = ["init", "--table", config.table, "--output", "indexes.yml", "--opensearch-url", config.opensearch_url]
    init += ["--warehouse", config.warehouse, "--catalog-properties", json.dumps(dict(config.catalog_properties))]
    init += ["--spark-conf", json.dumps(small_spark())]
    of_file = ["--file", "indexes.yml", "--positions-index", config.positions_index]
    code = f"from icecdc_core.__main__ import __file__, main; assert __file__.startswith({str(site)!r})\n"
    code += f"assert [main({init}), main({['sync', *of_file]})] == [0, 0]"
    notebook = json.loads((ROOT / "notebooks" / "30_validation.ipynb").read_text(encoding="utf-8"))
    cell = {"cell_type": "code", "id": "c", "metadata": {}, "execution_count": None, "outputs": [], "source": code}
    notebook["cells"].insert(0, cell)
    (work / "notebook.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    given = {"index_file": "indexes.yml", "positions_index": config.positions_index, "report_path": "report.json"}
    papermill = ["python", "-m", "papermill", "--no-progress-bar", "notebook.ipynb", "out.ipynb"]
    run_in(work, variables, *papermill, *(word for pair in given.items() for word in ("-r", *pair)))
    report = json.loads((work / "report.json").read_text())
    assert (report["ok"], report["index_documents"]) == (True, 2)
    status = run_in(work, variables, "icecdc", "status", *of_file, "--json").splitlines()[-1]
    assert (json.loads(status)["state"], f'"snapshot_id": {report["snapshot_id"]}' in status) == ("ok", True)


@pytest.mark.long
@pytest.mark.timeout(900)
def it_runs_from_the_wheel_in_an_empty_environment_and_an_empty_folder(wheel, tmp_path):
    """As a reader does it: each command is a process, and the services are those that it starts."""
    work, url, differences = tmp_path / "work", PRINTED, []
    environment = install(tmp_path / "environment", f"icecdc[local] @ {wheel.as_uri()}")
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")

    def run(words):
        return run_in(work, environment, *words)

    code = "import importlib.util as u; print([n for n in ('IPython', 'papermill') if u.find_spec(n)])"
    assert run(["python", "-c", code]) == "[]\n"
    try:
        for command, text in COMMANDS:
            actual = run([word.replace(PRINTED, url) for word in words_of(command)])
            if command == "icecdc services up":
                url = re.search(r"http://[\d.:]+", actual)[0]
                for name, content in FILES.items():
                    (work / name).write_text(content.replace(PRINTED, url), encoding="utf-8")
            elif text and plain(actual) != plain(text):
                differences.append((command, actual, text))
    finally:
        run(["icecdc", "services", "down", "--remove-data"])
    assert differences == []


@pytest.mark.long
@pytest.mark.timeout(1500)
def it_ends_with_commands_that_work_when_pasted(opensearch_url, tmp_path):
    """`make demo ARGS=--keep`."""
    command = [sys.executable, "-m", "demo", "--keep", "--output", str(tmp_path / "demo")]
    given = {**os.environ, "ICECDC_OPENSEARCH_URL": opensearch_url}
    ended = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "The airline is nested" in ended.stdout
    assert "from 1 of 3 shards" in ended.stdout
    assert "\n  San Francisco Intl\n" in ended.stdout  # found by its vector
    search, status, *_, page = ended.stdout.partition("Try it:\n")[2].strip().splitlines()
    assert "arr_delay" in Path(page).read_text(encoding="utf-8")
    pasted = [
        subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
        for line in (search, f"{status} --json")
    ]
    hits = json.loads(pasted[0].stdout)["hits"]["hits"]
    report = json.loads(pasted[1].stdout.splitlines()[-1])
    assert [hit["_source"]["arr_delay"] for hit in hits] == [1007]
    assert (report["state"], len(report["indexes"])) == ("ok", 5)
