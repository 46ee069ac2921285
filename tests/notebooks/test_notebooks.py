"""All notebooks: through papermill in processes of their own, and the way Databricks runs them."""

import ast
import json
from pathlib import Path

import pytest
import yaml

from icecdc_core import export_table
from tests.given.dbutils import Dbutils, NotebookExit
from tests.speed.fast_java import small_spark

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"


def _as_texts(config):
    given = {name: getattr(config, name) for name in sorted(config.model_fields_set)}
    texts = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in given.items()}
    return {name: text for name, text in texts.items() if text != "{}"}


def _papermill(notebook, output, parameters):
    import papermill  # here, because that takes seconds in every process that runs tests

    own = {"parameters": parameters, "kernel_name": "python3", "progress_bar": False}
    node = papermill.execute_notebook(str(NOTEBOOKS / notebook), str(output), **own)
    last = node.cells[-1].outputs[-1]
    assert last.output_type == "stream"
    return json.loads(last.text), json.dumps(node.cells)


def _as_databricks_would(notebook, dbutils, spark, display=print):
    """Run the code cells in one namespace that has `spark` and `dbutils`; the value the notebook exits with."""
    body, cells = [], json.loads((NOTEBOOKS / notebook).read_text())["cells"]
    for cell in (each for each in cells if each["cell_type"] == "code"):
        body += ast.parse("".join(cell["source"])).body
        if isinstance(body[-1], ast.Expr):
            body[-1].value = ast.Call(ast.Name("display", ast.Load()), [body[-1].value], [])
    program = compile(ast.fix_missing_locations(ast.Module(body, [])), notebook, "exec", dont_inherit=True)
    with pytest.raises(NotebookExit) as caught:
        exec(program, {"spark": spark, "dbutils": dbutils, "display": display})
    return json.loads(str(caught.value))


@pytest.fixture
def table(sql):
    """A table of three rows; returns what changes it."""
    sql("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    sql("INSERT INTO {t} VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    return lambda: sql(
        "DELETE FROM {t} WHERE id = 1",
        "UPDATE {t} SET name = 'zwei' WHERE id = 2",
        "INSERT INTO {t} VALUES (4, 'four')",
    )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", ["databricks", pytest.param("papermill", marks=pytest.mark.long)])
def it_runs_all_notebooks_one_after_the_other(
    spark, opensearch, make_config, indexed, table, tmp_path, monkeypatch, way
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # kernels find the package
    config = make_config(number_of_replicas=0)
    given = {**_as_texts(config), "report_path": str(tmp_path / "report.json")}
    given |= {"spark_conf": json.dumps(small_spark())} if way == "papermill" else {}

    def run(notebook, **more):
        if way == "papermill":
            return _papermill(notebook, tmp_path / "out.ipynb", {**given, **more})
        return _as_databricks_would(notebook, Dbutils(**{**given, **more}), spark), ""

    def names():
        return {key: document["name"] for key, document in indexed().items()}

    replicas = given.pop("number_of_replicas")
    setup, shown = run("00_setup.ipynb", dry_run="true")
    assert (setup["ok"], setup["source_rows"], setup["problems"]) == (True, 3, [])
    for text in ("OpenSearch field", "create: 3 documents"):
        assert text in shown or way == "databricks"
    assert not opensearch.indices.exists(index=config.index)

    export, shown = run("10_initial_export.ipynb", number_of_replicas=replicas)
    assert (export["kind"], export["upserts"]) == ("export", 3)
    assert names() == {"1": "one", "2": "two", "3": "three"}
    assert "IN SYNC" in shown or way == "databricks"

    table()
    polls = {"poll_interval_seconds": "0.1", "max_polls": "2"}
    sync, shown = run("20_incremental_cdc.ipynb", number_of_replicas=replicas, **polls)
    assert (sync["upserts"], sync["deletes"], sync["snapshots"]) == (2, 1, 3)
    assert names() == {"2": "zwei", "3": "three", "4": "four"}
    for text in ("poll 2: 0 snapshots", "2 documents written, 1 deleted"):
        assert text in shown or way == "databricks"

    repair = {}
    if way == "papermill":
        opensearch.delete(index=config.index, id="3", params={"refresh": "true"})
        validation, _ = run("30_validation.ipynb")
        assert (validation["ok"], validation["missing_ids"]) == (False, ["3"])
        repair = {"repair": "true"}
    validation, _ = run("30_validation.ipynb", **repair)
    found = validation["ok"], validation["repaired"], validation["index_documents"]
    assert found == (True, len(repair), 3)
    assert json.loads((tmp_path / "report.json").read_text()) == validation


class DescribeTheDatabricksWay:
    def it_explores_a_table_and_its_index_without_what_is_masked(self, spark, opensearch, make_config, table, tmp_path):
        select = ["id", "concat(left(name, 1), '...') AS name"]
        config = make_config(select=select)
        export_table(spark, config)
        opensearch.indices.refresh(index=config.index)
        table()
        shared = {name: getattr(config, name) for name in ("opensearch_url", "warehouse", "positions_index")}
        shared["catalog_properties"] = dict(config.catalog_properties)
        own = {"table": config.table, "identifier_columns": ["id"], "select": select}
        path = tmp_path / "indexes.yml"
        path.write_text(yaml.safe_dump({"defaults": shared, "indexes": {config.index: own}}, sort_keys=False))
        given = {"index_file": str(path), "query": "name:t*", "report_path": str(tmp_path / "report.json")}
        parts = []

        report = _as_databricks_would("50_explore.ipynb", Dbutils(**given), spark, lambda *some: parts.extend(some))
        shown = "".join(part._repr_html_() for part in parts if part is not None) + json.dumps(report)
        found = {name: report["changes"][name] for name in ("inserts", "updates", "deletes")}
        assert found == {"inserts": 1, "updates": 1, "deletes": 1}
        assert (report["next_sync"]["upserts"], report["next_sync"]["deletes"]) == (2, 1)
        assert (report["document"]["document_id"], report["document"]["agrees"]) == ("2", False)
        assert (report["query"]["hits"], report["snapshots"]) == (2, 4)
        assert json.loads((tmp_path / "report.json").read_text()) == report
        assert "t... \u2192 z..." in shown
        assert "BEHIND" in shown
        # Not even in a field that the parameters let through, as "two" becomes "t...".
        assert [secret for secret in ("three", "zwei", "four") if secret in shown] == []

    def it_goes_from_a_table_to_a_search_page(self, spark, make_config):
        config = make_config()
        given = _as_texts(config.replace(table=f"lake.ns.{config.table_name.upper()}"))
        kept = ("table", "opensearch_url", "warehouse", "catalog_properties", "positions_index")
        texts = {name: given[name] for name in kept if given.get(name)}
        report = _as_databricks_would("60_product_search.ipynb", Dbutils(**texts), spark)
        assert (report["ok"], report["index_documents"]) == (True, 3252)
        spark.sql(f"DROP TABLE {given['table']}")

    def it_ingests_from_kafka_with_texts_from_widgets_or_a_file(self, spark, make_ingest, topic, tmp_path):
        config = make_ingest(auto_create=True, identifier_columns="id")
        topic.send({"id": 1, "name": "one"}, {"id": 2, "name": "two"}, b"no json")
        report = _as_databricks_would("40_kafka_ingest.ipynb", Dbutils(**_as_texts(config)), spark)
        assert (report["state"], report["rows_written"], report["dead_letters"]) == ("ok", 2, 1)
        assert spark.table(config.table).count() == 2
        topic.send({"id": 3, "name": "three"})
        given = {name: getattr(config, name) for name in config.model_fields_set}
        entry = {name: dict(value) if hasattr(value, "items") else value for name, value in given.items()}
        file = tmp_path / "ingests.yml"
        file.write_text(yaml.safe_dump({"ingests": {"people": entry, "others": {**entry, "job": "others"}}}))
        texts = {"ingest_file": str(file), "job": "people", "table": "", "auto_create": ""}
        report = _as_databricks_would("40_kafka_ingest.ipynb", Dbutils(**texts), spark)
        assert (report["job"], report["rows_written"]) == (config.job, 1)
