"""The demo's plain parts: its folder, its parameters, the commands that it ends with."""

from __future__ import annotations

from pathlib import Path

from demo.__main__ import INDEX_FILE, Demo, _overrides, _parser, main
from demo.searches import commands_to_try


class DescribeTheDemo:
    def it_leaves_a_folder_alone_that_no_demo_made(self, tmp_path, capsys):
        (tmp_path / "thesis.txt").write_text("ten years of work")
        assert main(["--output", str(tmp_path)]) == 1
        assert (tmp_path / "thesis.txt").exists()
        assert "no demo wrote" in capsys.readouterr().err

    def it_uses_other_services_by_parameters_alone(self, tmp_path):
        given = ["--catalog-properties", '{"type": "rest", "uri": "http://127.0.0.1:8181"}']
        demo = Demo(_overrides(_parser().parse_args(given), "http://127.0.0.1:9200", tmp_path), tmp_path)
        actual = demo.configs["demo-flights"]
        assert (dict(actual.catalog_properties)["type"], actual.warehouse) == ("rest", "")

    def it_refuses_a_wrong_parameter_in_words(self, tmp_path, capsys):
        assert main(["--output", str(tmp_path / "demo"), "--opensearch-url", "nonsense"]) == 1
        assert "opensearch_url" in capsys.readouterr().err

    def it_names_no_secret_in_the_commands_to_try(self, monkeypatch):
        monkeypatch.setenv("ICECDC_CATALOG_PROPERTIES", '{"type": "rest", "credential": "hunter2"}')
        given = ["--opensearch-username", "reader", "--opensearch-password", "env:SECRET"]
        overrides = _overrides(_parser().parse_args(given), "http://127.0.0.1:9222", Path("/a folder"))
        text = " ".join(commands_to_try(overrides, INDEX_FILE))
        assert ("hunter2" in text, '--catalog-properties "$ICECDC_CATALOG_PROPERTIES"' in text) == (False, True)
