"""Parameters under Jupyter, papermill and Databricks; the report at the end."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from icecdc_core import local
from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError, IndexDiffersError, IngestWriteError, JavaNotFoundError
from icecdc_core.ingest import IngestConfig, IngestReport
from icecdc_core.jobs.setup import SetupReport
from icecdc_core.local import opensearch
from icecdc_core.local.server import ServerState
from icecdc_core.notebook import finish, list_indexes, open_services, open_spark, read_parameters, widget_text
from icecdc_core.reporting.reports import RunReport, ValidationReport
from tests.given.dbutils import Dbutils, NotebookExit, OldWidgets, Widgets

REPORT = RunReport(kind="sync", table="lake.ns.t", index="t", upserts=3)
NAMES = ("index_file", "table", "index", "opensearch_url", "identifier_columns", "options")
CELL = "\n".join(f'{name} = ""' for name in NAMES)


def _namespace(*cells: str, dbutils: Dbutils | None = None) -> dict[str, Any]:
    namespace: dict[str, Any] = {"In": ["", *cells], "Out": {}, "spark": object(), "display": print}
    if dbutils is not None:
        namespace["dbutils"] = dbutils
    for cell in cells:
        exec(cell, namespace)
    return namespace


class DescribeReadParametersUnderPapermill:
    @pytest.mark.parametrize(
        ("injected", "expected"),
        [
            ('table = "lake.ns.u"\ndry_run = True', {"table": "lake.ns.u", "dry_run": True}),
            ('table = "a.b.c"\nidentifier_columns = ["x", "y"]', {"identifier_columns": ["x", "y"]}),
            ('table = "a.b.c"\nimport json\nsettings = json.dumps({"a": 1})', {"settings": {"a": 1}}),
            ('table = "a.b.c"\ncolumns = print\nimport json as settings', {"columns": [], "settings": {}}),
            (
                'table = "a.b.c"\nimport datetime, numpy, pathlib, types\nstart_from = datetime.date(2026, 1, 2)\n'
                'report_path = pathlib.Path("r")\nmax_polls = numpy.int8(3)\nmapping = types.MappingProxyType({"a":1})',
                {"start_from": "2026-01-02", "report_path": "r", "max_polls": 3, "mapping": {"a": 1}},
            ),
            ('options = {"table": "a.b.c", "index": None, "index_file": None}', {"index": "c"}),
            ('options = \'{"table": "a.b.c", "max_polls": 0}\'', {"table": "a.b.c", "max_polls": 0}),
            ('table = "a.b.c"\noptions = {"table": "d.e.f", "settings": {"a": 1}}', {"table": "a.b.c", "index": "c"}),
        ],
    )
    def it_uses_what_was_set_last(self, injected, expected):
        actual = read_parameters(_namespace(CELL, f"# Parameters\n{injected}"))
        assert {name: getattr(actual, name) for name in expected} == expected
        assert "opensearch_url" not in actual.model_fields_set

    def it_refuses_a_misspelt_name_beside_all_other_problems(self):
        for name in ("tables", "tabel", "Table", "max_pols", "identifier_column", "dryrun", "option"):
            with pytest.raises(ConfigError) as caught:
                read_parameters(_namespace(CELL, f'# Parameters\n{name} = "hunter2"\nlease_seconds = -1'))
            problems, text = [problem.split(":")[0] for problem in caught.value.problems], str(caught.value)
            assert (sorted(problems), "hunter2" in text) == (sorted([name, "table", "lease_seconds"]), False)
            assert f"{name}: unknown parameter. Remedy: did you mean" in text

    def it_refuses_wrong_options(self):
        for options, words in (
            ('{"max_pols": 3}', "max_pols: unknown parameter.*did you mean max_polls"),
            ("max_polls=3", "options: is not valid JSON"),
            ("[3]", "options: is not an object"),
        ):
            with pytest.raises(ConfigError, match=words):
                read_parameters(_namespace(CELL, f'table = "a.b.c"\noptions = {options!r}'))


class DescribeReadParametersOnDatabricks:
    def it_reads_what_the_job_passed_and_ignores_names_that_it_passes_to_others(self):
        given = {"table": "main.ns.t", "opensearch_url": "https://search:9200", "dry_run": "true", "max_polls": "3"}
        others = {"env": "prod", "run_date": "2026-11-23", "warehouse_id": "w", "timeout_seconds": "9", "topics": "t"}
        actual = read_parameters(_namespace(CELL, dbutils=Dbutils(**given, **others)))
        assert (actual.table, actual.dry_run, actual.max_polls) == ("main.ns.t", True, 3)

    @pytest.mark.parametrize("widgets", [Widgets, OldWidgets])
    def it_makes_a_widget_with_the_value_of_the_cell_as_default_and_needs_no_line_in_the_cell(self, widgets):
        cell = CELL.replace('table = ""', 'table = "a.b.c"').replace('url = ""', 'url = "https://s:1"')
        dbutils = Dbutils(widgets, bulk_connections="4")
        assert read_parameters(_namespace(f"{cell}\ndry_run = False", dbutils=dbutils)).bulk_connections == 4
        actual = [dbutils.widgets.get(name) for name in ("table", "dry_run", "options", "index")]
        assert actual == ["a.b.c", "false", "", ""]

    def it_refuses_a_slip_of_a_passed_name(self):
        slips = "tables", "Table", "opensearch-url", "identifier_column", "dryrun", "spark_config", "indx", "brnch"
        for name in slips:
            dbutils = Dbutils(table="a.b.c", opensearch_url="https://s:1", **{name: "x"})
            with pytest.raises(ConfigError, match=f"{name}: unknown parameter.*did you mean"):
                read_parameters(_namespace(CELL, dbutils=dbutils))

    @pytest.mark.parametrize("widgets", [Widgets, OldWidgets])
    def it_says_that_a_widget_outlives_an_edit_of_the_cell_and_shows_no_value(self, capsys, widgets):
        cell = CELL.replace('url = ""', 'url = "https://s:1"').replace('table = ""', 'table = "a.b.c"')
        dbutils = Dbutils(widgets, catalog_properties='{"token":"hunter2"}')
        read_parameters(_namespace(f"{cell}\ndry_run = True", dbutils=dbutils))
        assert capsys.readouterr().out == ""
        again = f"{cell}\ndry_run = False\ncatalog_properties = {{}}"
        assert read_parameters(_namespace(again, dbutils=dbutils)).dry_run is True
        assert capsys.readouterr().out == "The values of widgets are used: catalog_properties, dry_run\n"

    def it_shows_nothing_of_a_mapping_or_a_secret(self, capsys):
        for text in (' {"token":"hunter2"}', "token=hunter2", '["hunter2"]', "hunter2"):
            given = {"catalog_properties": text, "spark_conf": text, "opensearch_password": "hunter2", "options": text}
            with pytest.raises(ConfigError) as caught:
                read_parameters(_namespace(CELL, dbutils=Dbutils(table="a.b.c", **given)))
            assert "hunter2" not in f"{caught.value}{capsys.readouterr()}"


FILE = """
defaults: {opensearch_url: "https://search:9200", branch: audit, max_polls: 5, dry_run: true}
indexes:
  films: {table: lake.shop.film, settings: {refresh_interval: 5s}}
  orders: {table: lake.shop.orders, index: orders-v2}
"""


@pytest.fixture
def index_file(tmp_path: Path) -> str:
    path = tmp_path / "indexes.yml"
    path.write_text(FILE)
    return str(path)


class DescribeReadParametersWithAnIndexFile:
    def it_reads_the_named_index(self, index_file):
        injected = f"# Parameters\nindex_file = {index_file!r}\nindex = 'orders'"
        actual = read_parameters(_namespace(CELL, injected))
        assert actual == SyncConfig.load(index_file, "orders")
        assert (actual.index, actual.branch, actual.max_polls, actual.dry_run) == ("orders-v2", "audit", 5, True)

    def it_is_no_parameter_of_an_ingest(self, index_file):
        cell = f"job = 'j'\ntopics = 't'\nbootstrap_servers = 'h:1'\ntable = 'l.n.t'\nindex_file = {index_file!r}"
        assert read_parameters(_namespace(cell), IngestConfig).table == "l.n.t"

    @pytest.mark.parametrize("widgets", [Widgets, OldWidgets])
    def it_reads_file_and_index_from_widgets_and_needs_no_url(self, index_file, widgets):
        options = '{"max_polls": 7, "dry_run": false}'
        dbutils = Dbutils(widgets, index_file=index_file, index="films", branch="", options=options)
        actual = read_parameters(_namespace(CELL, dbutils=dbutils))
        assert (actual.opensearch_url, actual.branch, actual.max_polls) == ("https://search:9200", "audit", 7)
        assert actual.dry_run is False

    def it_asks_for_a_server_because_a_cluster_cannot_reach_an_embedded_one(self, index_file):
        with pytest.raises(ConfigError, match="opensearch_url: missing"):
            read_parameters(_namespace(CELL, dbutils=Dbutils(table="a.b.c")))
        Path(index_file).write_text("indexes: {films: {table: lake.shop.film}}")
        with pytest.raises(ConfigError, match="opensearch_url: missing"):
            read_parameters(_namespace(CELL, dbutils=Dbutils(index_file=index_file)))
        given = Dbutils(index_file=index_file, opensearch_url="https://s:1")
        assert read_parameters(_namespace(CELL, dbutils=given)).opensearch_url == "https://s:1"


class DescribeListIndexes:
    def it_gives_the_names_to_the_job_and_ends_the_notebook(self, index_file):
        dbutils = Dbutils(index_file=index_file, index="", list_only="true")
        with pytest.raises(NotebookExit) as caught:
            list_indexes(_namespace(CELL, dbutils=dbutils))
        assert json.loads(str(caught.value)) == ["films", "orders"]
        assert dbutils.jobs.taskValues.texts == {"indexes": '["films", "orders"]'}

    def it_does_nothing_for_one_index(self):
        for passed in ({"table": "a.b.c"}, {"index_file": "missing.yml", "index": "films"}):
            dbutils = Dbutils(**passed)
            list_indexes(_namespace(CELL, dbutils=dbutils))
            assert dbutils.jobs.taskValues.texts == {}
        list_indexes(_namespace(CELL, "index_file = 'missing.yml'"))

    def it_checks_all_indexes_with_what_the_job_passes_and_refuses_a_sync_that_never_ends(self, index_file):
        both, endless = "indexes: {a: {table: l.n.a}, b: {table: l.n.b}}", "The sync of a polls without.*max_polls=0"
        with_password = f"defaults: {{opensearch_password: env:P}}\n{both}"
        for text, words, passed in (
            (FILE, "list_only: needs index_file and no index", {"index": "films"}),
            (FILE, "list_only: needs index_file and no index", {"index_file": ""}),
            (with_password, "opensearch_username: missing", {}),
            (both.replace("n.a", "n.a, max_polls: 0, poll_interval_seconds: 30"), endless, {}),
            (both.replace("n.a", "n.a, max_polls: 0, target_lag: 10s"), endless, {}),
        ):
            Path(index_file).write_text(text)
            given = {"index_file": index_file, "list_only": "true", **passed}
            dbutils = Dbutils(**given)
            with pytest.raises(ConfigError, match=words):
                list_indexes(_namespace(CELL, dbutils=dbutils))
            assert dbutils.jobs.taskValues.texts == {}
        Path(index_file).write_text(with_password)
        with pytest.raises(NotebookExit):
            list_indexes(_namespace(CELL, dbutils=Dbutils(**given, opensearch_username="u")))


OWN, STARTED, DEFAULT = (f"http://127.0.0.1:{port}" for port in (8234, 8235, 9200))


@pytest.mark.parametrize(
    ("recorded", "answering", "expected"),
    [(OWN, {OWN, DEFAULT}, OWN), (OWN, {DEFAULT}, DEFAULT), (None, {DEFAULT}, DEFAULT), (None, set(), STARTED)],
)
def it_prefers_the_embedded_server_to_a_stranger_and_says_which_is_used(
    monkeypatch, capsys, recorded, answering, expected
):
    state, started = (url and ServerState(url, 1, "", "", "", "") for url in (recorded, STARTED))
    monkeypatch.setattr(opensearch.background, "status", lambda: state)
    monkeypatch.setattr(opensearch, "cluster_at", lambda url: url in answering)
    monkeypatch.setattr(local, "start_opensearch", lambda: started)
    used = open_services(SyncConfig(table="a.b.c")).opensearch_url
    assert (used, expected in capsys.readouterr().out) == (expected, True)


def it_keeps_a_value_on_the_way_through_a_widget():
    for name, value in (
        *(("dry_run", True), ("lease_seconds", 0.5), ("max_polls", 7), ("columns", ["a", "b,c"]), ("columns", [])),
        *(("spark_conf", {"type": "rest"}), ("row_filter", "plain"), ("row_filter", None)),
    ):
        actual = SyncConfig(table="a.b.c", **{name: widget_text(value)})
        assert getattr(actual, name) == getattr(SyncConfig(table="a.b.c", **{name: value}), name)
    assert json.loads(widget_text({"start_from": date(2026, 1, 31)})) == {"start_from": "2026-01-31"}


class DescribeFinish:
    def it_fails_after_the_report_when_a_run_would_or_a_difference_must(self, tmp_path):
        setup = SetupReport(ok=False, table="a.b.c", index="c", errors=[IndexDiffersError("not ready")])
        differs = ValidationReport(ok=False, source_rows=1, index_documents=0, missing=1, table="a.b.c", index="c")
        behind, fails = replace(differs, snapshot_id=2, position_snapshot_id=1), {"fail_on_difference": True}
        for number, (report, given, words) in enumerate(
            (
                (setup, {}, "not ready"),
                (differs, fails, "1 missing.*repair=true"),
                (behind, fails, "1 missing.*run the sync"),
            )
        ):
            path = tmp_path / f"{number}.json"
            with pytest.raises(IndexDiffersError, match=words):
                finish(report, SyncConfig(table="a.b.c", report_path=str(path), **given), {"dbutils": Dbutils()})
            assert json.loads(path.read_text())["ok"] is False

    def it_fails_after_the_report_when_tables_could_not_be_written(self, capsys):
        tables = {"lake.n.t": {"error": "no permission", "snapshot_id": None}, "lake.n.u": {"snapshot_id": 2**62 + 1}}
        report = IngestReport("j", behind=["lake.n.t"], tables=tables)
        assert str(2**62 + 1) in report.table_summary().to_html()
        with pytest.raises(IngestWriteError, match=r"lake\.n\.t \(no permission\)"):
            finish(report, SyncConfig(table="a.b.c"), {"dbutils": Dbutils()})
        assert json.loads(capsys.readouterr().out)["state"] == "partial"

    def it_replaces_the_report_of_an_older_run_when_spark_does_not_start(self, monkeypatch, tmp_path: Path):
        (path := tmp_path / "report.json").write_text('{"state": "ok"}')
        monkeypatch.setattr("icecdc_core.notebook.get_spark", Mock(side_effect=JavaNotFoundError("no Java")))
        with pytest.raises(JavaNotFoundError):
            open_spark(SyncConfig(table="a.b.c", report_path=path))
        assert json.loads(path.read_text())["state"] == "config"

    def it_prints_one_json_object_and_writes_it_where_asked(self, capsys, tmp_path: Path):
        path = tmp_path / "report.json"
        finish(REPORT, SyncConfig(table="lake.ns.t", report_path=str(path)), {})
        assert json.loads(capsys.readouterr().out) == json.loads(path.read_text()) == REPORT.to_dict()
        finish({"ready": True}, SyncConfig(table="lake.ns.t"), {})
        assert json.loads(capsys.readouterr().out) == {"ready": True}
        with pytest.raises(NotebookExit) as caught:  # and hands it to the job
            finish(REPORT, SyncConfig(table="lake.ns.t"), {"dbutils": Dbutils()})
        assert json.loads(str(caught.value)) == REPORT.to_dict()


FOLDER = Path(__file__).parents[2] / "notebooks"


def it_has_its_parameters_in_the_cell_behind_which_papermill_puts_others():
    for path in FOLDER.glob("*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        read = next(n for n, cell in enumerate(cells) if "read_parameters" in "".join(cell["source"]))
        tagged = [n for n, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", [])]
        assert tagged == [read - 1], path
