"""The snippets of the README and of how it works, run as they are printed, on this test's table and index."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
CATALOG = 'catalog_properties={"type": "rest", "uri": "http://127.0.0.1:8181"}'


def snippet(document: str) -> str:
    """The first Python snippet of a document."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"), re.M | re.S)[0]


def it_exports_syncs_and_validates_as_the_readme_says(sql, make_config, indexed):
    sql("CREATE TABLE {t} (order_id BIGINT NOT NULL, status STRING) USING iceberg")
    sql("INSERT INTO {t} VALUES (1, 'open'), (2, 'paid')")
    config = make_config(identifier_columns=["order_id"])
    given = {"catalog_properties": dict(config.catalog_properties), "warehouse": config.warehouse}
    text = snippet("README.md").replace("http://127.0.0.1:9200", config.opensearch_url)
    text = text.replace("lake.shop.orders", config.table).replace('"orders"', f'"{config.index}"')
    assert CATALOG in text
    text = text.replace(CATALOG, f"positions_index={config.positions_index!r}, **{given!r}")
    exec(compile(text, "README.md", "exec"), {})
    assert indexed() == {"1": {"order_id": 1, "status": "open"}, "2": {"order_id": 2, "status": "paid"}}


def it_merges_changes_as_how_it_works_says(spark, sql, name):
    sql("CREATE TABLE {t} (order_id BIGINT NOT NULL, status STRING) USING iceberg")
    sql("INSERT INTO {t} VALUES (1, 'open'), (2, 'paid')")
    sql("UPDATE {t} SET status = 'paid' WHERE order_id = 1")
    first, last = (row[0] for row in sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at").collect())
    text = snippet("docs/how-it-works.md").replace("lake.shop.orders", f"lake.ns.{name}")
    names = {"spark": spark, "start_snapshot_id": first, "end_snapshot_id": last}
    exec(compile(text, "docs/how-it-works.md", "exec"), names)
    actual = names["net_changes"].select("order_id", "status", "_change_type").collect()
    assert actual == [(1, "paid", "INSERT")]
