"""The demo's plain parts: its folder, its parameters, the commands that it ends with."""

from pathlib import Path

from demo.__main__ import INDEX_FILE, _overrides, _parser, main
from demo.searches import commands_to_try


class DescribeTheDemo:
    def it_leaves_a_folder_alone_that_no_demo_made(self, tmp_path, capsys):
        (tmp_path / "thesis.txt").write_text("ten years of work")
        assert main(["--output", str(tmp_path)]) == 1
        assert (tmp_path / "thesis.txt").exists()
        assert "no demo wrote" in capsys.readouterr().err

    def it_names_no_secret_in_the_commands_to_try(self, monkeypatch):
        monkeypatch.setenv("ICECDC_CATALOG_PROPERTIES", '{"type": "rest", "credential": "hunter2"}')
        given = ["--opensearch-username", "reader", "--opensearch-password", "env:SECRET"]
        overrides = _overrides(_parser().parse_args(given), "http://127.0.0.1:9222", Path("/a folder"))
        text = " ".join(commands_to_try(overrides, INDEX_FILE))
        assert ("hunter2" in text, '--catalog-properties "$ICECDC_CATALOG_PROPERTIES"' in text) == (False, True)
