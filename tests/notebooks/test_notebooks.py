"""All notebooks: through papermill in processes of their own, and the way Databricks runs them."""

import ast
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from icecdc_core import export_table
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig
from tests.dbutils import Dbutils, NotebookExit
from tests.fast_java import small_spark

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"


@pytest.fixture(autouse=True)
def _kernels_find_the_package(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def _as_texts(config):
    given = {name: getattr(config, name) for name in sorted(config.model_fields_set)}
    texts = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in given.items()}
    return {name: text for name, text in texts.items() if text != "{}"}


def _papermill(notebook, output, parameters):
    import papermill  # here and below: the imports take seconds, in every process that runs tests

    node = papermill.execute_notebook(
        str(NOTEBOOKS / notebook), str(output), parameters=parameters, kernel_name="python3", progress_bar=False
    )
    last = node.cells[-1].outputs[-1]
    assert last.output_type == "stream"
    return json.loads(last.text), json.dumps(node.cells)


def _as_databricks_would(notebook, dbutils, spark, display=print):
    """Run the code cells in one namespace that has `spark` and `dbutils`; the value the notebook exits with."""
    import nbformat

    body = []
    for cell in nbformat.read(NOTEBOOKS / notebook, as_version=4).cells:
        if cell.cell_type == "code":
            body += ast.parse(cell.source).body
            if isinstance(body[-1], ast.Expr):
                body[-1].value = ast.Call(ast.Name("display", ast.Load()), [body[-1].value], [])
    program = compile(ast.fix_missing_locations(ast.Module(body, [])), notebook, "exec", dont_inherit=True)
    with pytest.raises(NotebookExit) as caught:
        exec(program, {"spark": spark, "dbutils": dbutils, "display": display})
    return json.loads(str(caught.value))


@pytest.mark.parametrize("notebook", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def it_assigns_no_parameter_so_that_a_second_run_reads_the_same(notebook):
    cells = [cell for cell in json.loads((NOTEBOOKS / notebook).read_text())["cells"] if cell["cell_type"] == "code"]
    others = [cell for cell in cells if "parameters" not in cell["metadata"].get("tags", ())]
    nodes = [node for cell in others for node in ast.walk(ast.parse("".join(cell["source"])))]
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert stored & {*ExploreConfig.model_fields, *IngestConfig.model_fields, "index_file", "options"} == set()


def _create(spark, table):
    columns = "id BIGINT NOT NULL, name STRING"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'one'), (2, 'two'), (3, 'three')")


def _change(spark, table):
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    spark.sql(f"UPDATE {table} SET name = 'zwei' WHERE id = 2")
    spark.sql(f"INSERT INTO {table} VALUES (4, 'four')")


def _index_file(config, folder, **parameters):
    shared = {"opensearch_url", "warehouse", "catalog_properties", "positions_index"}
    given = {name: dict(value) if isinstance(value, Mapping) else value for name, value in dict(config).items()}
    content = {
        "defaults": {name: given[name] for name in shared},
        "indexes": {config.index: {"table": config.table, "identifier_columns": ["id"], **parameters}},
    }
    path = folder / "indexes.yml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def _documents(client, index):
    client.indices.refresh(index=index)
    hits = client.search(index=index, body={"size": 100})["hits"]["hits"]
    return {hit["_id"]: hit["_source"]["name"] for hit in hits}


@pytest.mark.timeout(1200)
class DescribeThePapermillWay:
    @pytest.mark.long
    def it_runs_all_notebooks_one_after_the_other(self, spark, opensearch, make_config, tmp_path):
        config = make_config(number_of_replicas=0)
        given = {**_as_texts(config), "report_path": str(tmp_path / "report.json")}
        given["spark_conf"] = json.dumps(small_spark())
        setup_given = {name: value for name, value in given.items() if name != "number_of_replicas"}
        _create(spark, config.table)

        setup, shown = _papermill("00_setup.ipynb", tmp_path / "00.ipynb", setup_given)
        assert (setup["ok"], setup["source_rows"], setup["problems"]) == (True, 3, [])
        assert "OpenSearch field" in shown
        assert not opensearch.indices.exists(index=config.index)

        export, shown = _papermill("10_initial_export.ipynb", tmp_path / "10.ipynb", given)
        assert (export["kind"], export["upserts"]) == ("export", 3)
        assert _documents(opensearch, config.index) == {"1": "one", "2": "two", "3": "three"}
        assert "IN SYNC" in shown

        _change(spark, config.table)
        polls = {"poll_interval_seconds": "0.1", "max_polls": "2"}
        sync, shown = _papermill("20_incremental_cdc.ipynb", tmp_path / "20.ipynb", given | polls)
        assert (sync["upserts"], sync["deletes"], sync["snapshots"]) == (2, 1, 3)
        assert _documents(opensearch, config.index) == {"2": "zwei", "3": "three", "4": "four"}
        assert "poll 2: 0 snapshots" in shown
        assert "2 documents written, 1 deleted" in shown

        opensearch.delete(index=config.index, id="3", params={"refresh": "true"})
        validation, shown = _papermill("30_validation.ipynb", tmp_path / "30.ipynb", setup_given)
        assert (validation["ok"], validation["missing_ids"]) == (False, ["3"])
        assert json.loads((tmp_path / "report.json").read_text()) == validation

        repaired, _ = _papermill("30_validation.ipynb", tmp_path / "30b.ipynb", setup_given | {"repair": "true"})
        assert (repaired["ok"], repaired["repaired"]) == (True, 1)


class DescribeTheDatabricksWay:
    def it_runs_all_notebooks_with_texts_from_widgets(self, spark, opensearch, make_config):
        config = make_config()
        given = _as_texts(config)
        _create(spark, config.table)

        setup = _as_databricks_would("00_setup.ipynb", Dbutils(**given), spark)
        export = _as_databricks_would("10_initial_export.ipynb", Dbutils(**given), spark)
        _change(spark, config.table)
        sync = _as_databricks_would("20_incremental_cdc.ipynb", Dbutils(**given), spark)
        validation = _as_databricks_would("30_validation.ipynb", Dbutils(**given), spark)

        assert (setup["ok"], export["upserts"], sync["upserts"], sync["deletes"]) == (True, 3, 2, 1)
        assert (validation["ok"], validation["index_documents"]) == (True, 3)
        assert _documents(opensearch, config.index) == {"2": "zwei", "3": "three", "4": "four"}

    def it_explores_a_table_and_its_index_without_what_is_masked(self, spark, opensearch, make_config, tmp_path):
        select = ["id", "concat(left(name, 1), '...') AS name"]
        config = make_config(select=select)
        _create(spark, config.table)
        export_table(spark, config)
        opensearch.indices.refresh(index=config.index)
        _change(spark, config.table)
        path = _index_file(config, tmp_path, select=select)
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

    def it_goes_from_a_table_to_a_search_page(self, spark, make_config, opensearch):
        config = make_config()
        given = _as_texts(config.replace(table=f"lake.ns.{config.table_name.upper()}"))
        kept = ("table", "opensearch_url", "warehouse", "catalog_properties", "positions_index")
        texts = {name: given[name] for name in kept if given.get(name)}
        report = _as_databricks_would("60_product_search.ipynb", Dbutils(**texts), spark)
        assert (report["ok"], report["index_documents"]) == (True, 3252)
        spark.sql(f"DROP TABLE {given['table']}")

    def it_ingests_from_kafka_with_texts_from_widgets(self, spark, make_ingest, topic):
        config = make_ingest(auto_create=True, identifier_columns="id")
        topic.send({"id": 1, "name": "one"}, {"id": 2, "name": "two"}, b"no json")
        report = _as_databricks_would("40_kafka_ingest.ipynb", Dbutils(**_as_texts(config)), spark)
        assert (report["state"], report["rows_written"], report["dead_letters"]) == ("ok", 2, 1)
        assert spark.table(config.table).count() == 2
