"""The demo's plain parts: its folder, its parameters, its summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.__main__ import INDEX_FILE, Demo, _overrides, _parser, main
from demo.day import TABLES
from demo.results import summary
from demo.searches import commands_to_try
from demo.workspace import make_empty


class DescribeTheDemo:
    def it_leaves_a_folder_alone_that_no_demo_made(self, tmp_path: Path, capsys):
        (tmp_path / "thesis.txt").write_text("ten years of work")
        assert main(["--output", str(tmp_path)]) == 1
        assert (tmp_path / "thesis.txt").exists()
        assert "no demo wrote" in capsys.readouterr().err

    def it_starts_from_nothing_each_time(self, tmp_path: Path):
        make_empty(tmp_path / "demo")
        (tmp_path / "demo" / "old.html").touch()
        make_empty(tmp_path / "demo")
        assert [path.name for path in (tmp_path / "demo").iterdir()] == [".icecdc-demo"]

    def it_uses_other_services_by_parameters_alone(self, tmp_path: Path):
        given = ["--catalog-properties", '{"type": "rest", "uri": "http://127.0.0.1:8181"}']
        demo = Demo(_overrides(_parser().parse_args(given), "http://127.0.0.1:9200", tmp_path), tmp_path)
        actual = demo.configs["demo-flights"]
        assert (dict(actual.catalog_properties)["type"], actual.warehouse) == ("rest", "")

    def it_sums_up_each_table_in_a_line(self, tmp_path: Path):
        demo = Demo({}, tmp_path)
        for result in demo.results.values():
            result.export = {"upserts": 336776, "seconds": 20.0}
            result.sync = {"upserts": 1, "deletes": 2, "carryovers_removed": 3, "seconds": 10.0}
            result.validation = {"ok": True, "source_rows": 5, "index_documents": 5, "seconds": 1.5}
        actual = summary(demo.results.values()).splitlines()
        assert actual[1].split() == ["flights", "5", "5", "336,776", "1", "2", "3", "yes", "31.5"]
        assert len(actual) == 1 + len(TABLES)

    def it_refuses_a_wrong_parameter_in_words(self, tmp_path: Path, capsys):
        given = ["--output", str(tmp_path / "demo"), "--opensearch-url", "nonsense"]
        assert main(given) == 1
        assert "opensearch_url" in capsys.readouterr().err

    def it_names_the_servers_in_the_commands_to_try_and_no_secret(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("ICECDC_CATALOG_PROPERTIES", '{"type": "rest", "credential": "hunter2"}')
        given = ["--opensearch-username", "reader", "--opensearch-password", "env:SECRET"]
        overrides = _overrides(_parser().parse_args(given), "http://127.0.0.1:9222", Path("/a folder"))
        search, status = commands_to_try(overrides, INDEX_FILE)
        assert search.split() == [
            *("curl", "--user", "reader"),
            "'http://127.0.0.1:9222/demo-flights/_search?q=dest:SFO&sort=arr_delay:desc&size=1&pretty'",
        ]
        assert "status --file demo/indexes.yml --opensearch-url http://127.0.0.1:9222 --opensearch-username" in status
        assert status.endswith('--opensearch-password env:SECRET --catalog-properties "$ICECDC_CATALOG_PROPERTIES"')

    def it_quotes_a_folder_in_the_commands_to_try(self):
        overrides = _overrides(_parser().parse_args([]), "http://127.0.0.1:9222", Path("/a folder"))
        assert commands_to_try(overrides, INDEX_FILE)[1].endswith(" --warehouse '/a folder/warehouse'")
