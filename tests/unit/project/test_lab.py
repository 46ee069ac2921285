"""The notebooks and the kernel of `make lab`; no server and no Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbformat
import pytest

from demo.lab import DAY_NOTEBOOK, INDEX_FILE, main, prepare_notebooks, write_kernel

GIVEN = {
    "index_file": str(INDEX_FILE),
    "index": "demo-flights",
    "opensearch_url": "http://127.0.0.1:9222",
    "warehouse": '/a "folder" with # and \\1',
}


def parameters(notebook: Path) -> dict[str, object]:
    """What the cells of parameters set, the later ones last."""
    found: dict[str, object] = {}
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "code" and "\nindex_file: " in f"\n{cell.source}":
            exec(cell.source, {}, found)
    return found


class DescribeTheNotebooks:
    def it_has_those_of_an_index_in_the_order_of_a_day(self, tmp_path: Path):
        names = [path.name for path in prepare_notebooks(tmp_path, GIVEN)]
        assert names[:5] == [
            *("00_setup.ipynb", "10_initial_export.ipynb", DAY_NOTEBOOK),
            *("20_incremental_cdc.ipynb", "30_validation.ipynb"),
        ]
        assert "40_kafka_ingest.ipynb" not in names

    def it_fills_in_the_parameters_of_each(self, tmp_path: Path):
        for path in prepare_notebooks(tmp_path, GIVEN):
            found = parameters(path)
            expected = {name: value for name, value in GIVEN.items() if name in found}
            assert {name: found[name] for name in expected} == expected
            needed = {*GIVEN} - ({"opensearch_url"} if path.name == DAY_NOTEBOOK else set())
            assert needed <= {*found}

    def it_leaves_the_other_parameters_and_their_comments(self, tmp_path: Path):
        source = (Path(INDEX_FILE).parents[1] / "notebooks" / "20_incremental_cdc.ipynb").read_text(encoding="utf-8")
        copy = next(path for path in prepare_notebooks(tmp_path, GIVEN) if path.name == "20_incremental_cdc.ipynb")
        before, after = (text.count("  # ") for text in (source, copy.read_text(encoding="utf-8")))
        assert (before, parameters(copy)["change_mode"]) == (after, "net")

    def it_keeps_what_a_person_wrote_and_sets_the_parameters_again(self, tmp_path: Path):
        copy = prepare_notebooks(tmp_path, GIVEN)[0]
        node = nbformat.read(copy, as_version=4)
        node.cells.append(nbformat.v4.new_code_cell("mine = 1"))
        nbformat.write(node, copy)
        prepare_notebooks(tmp_path, {**GIVEN, "opensearch_url": "http://127.0.0.1:9333"})
        assert nbformat.read(copy, as_version=4).cells[-1].source == "mine = 1"
        assert parameters(copy)["opensearch_url"] == "http://127.0.0.1:9333"


class DescribeTheKernel:
    def it_is_this_python_and_finds_the_demo(self, tmp_path: Path):
        write_kernel(tmp_path)
        kernel = json.loads((tmp_path / "kernels" / "python3" / "kernel.json").read_text(encoding="utf-8"))
        assert kernel["argv"][0] == sys.executable
        assert kernel["env"]["PYTHONPATH"].startswith(str(INDEX_FILE.parents[1]))


def it_refuses_a_wrong_index_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    given = ["--output", str(tmp_path), "--opensearch-url", "http://127.0.0.1:9", "--index", "demo-boats"]
    assert main(given) == 1
    assert "demo-boats" in capsys.readouterr().err
