"""The Python and SQL blocks of README.md and docs/, run on tables and indexes of this test, page by page."""

import ast
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from icecdc_core.__main__ import main
from icecdc_core.config import SyncConfig
from icecdc_core.jobs.export import export_table
from icecdc_core.runs.dead_letters import SCHEMA
from tests.doc_blocks import Block, all_blocks, words_of
from tests.integration.project.test_tutorial import COMMANDS, FILES, PRINTED, plain
from tests.kafka_topics import Topic

RUN = [block for block in all_blocks() if block.language in ("python", "sql") and not block.mark]
RUN = [block for block in RUN if not block.title]  # the files of the tutorial, which test_tutorial.py runs
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
def addresses(opensearch_url, shared_config) -> dict[str, Any]:
    catalog = {name: getattr(shared_config, name) for name in ("warehouse", "catalog_properties")}
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


def it_shows_in_the_tutorial_what_happens(spark, warehouse, opensearch, opensearch_url, tmp_path, monkeypatch, capsys):
    """From the first command to the last before its how-tos."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        own = text.replace(PRINTED, f"{opensearch_url}\n  positions_index: positions-tutorial")
        own = own.replace("warehouse: warehouse", f"warehouse: {warehouse}")  # the catalog of this session
        Path(name).write_text(own, encoding="utf-8")
    differences = []
    for command, text in COMMANDS:
        words = words_of(command)
        capsys.readouterr()
        if words[:2] == ["icecdc", "services"]:
            continue
        if words[0] == "python":
            exec(compile(Path(words[1]).read_text(encoding="utf-8"), words[1], "exec"), {})
            continue
        if words[0] == "curl":
            (url,) = (word for word in words if word.startswith(PRINTED))
            with urllib.request.urlopen(url.replace(PRINTED, opensearch_url)) as answer:
                actual = answer.read().decode()
        else:
            assert (words[0], main(words[1:], "icecdc")) == ("icecdc", 0)
            actual = capsys.readouterr().out
        differences += [] if plain(actual) == plain(text) else [(command, actual, text)]
    spark.sql("DROP TABLE lake.shop.books")
    opensearch.indices.delete(index="books-*,positions-tutorial", params={"expand_wildcards": "all"})
    assert differences == []
