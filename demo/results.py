"""The results of a demo: the summary of each table, and the executed notebooks as .ipynb and .html."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from icecdc_core.errors import IcecdcError

_HEAD = ("table", "rows", "documents", "exported", "upserts", "deletes", "carryovers removed", "equal", "seconds")


@dataclass
class TableResult:
    """The reports of one table."""

    table: str
    export: dict[str, Any] = field(default_factory=dict)
    sync: dict[str, Any] = field(default_factory=dict)
    validation: dict[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> list[str]:
        """The table's line in the summary."""
        counts = [self.validation["source_rows"], self.validation["index_documents"], self.export["upserts"]]
        counts += [self.sync[name] for name in ("upserts", "deletes", "carryovers_removed")]
        seconds = sum(report["seconds"] for report in (self.export, self.sync, self.validation))
        verdict = "yes" if self.validation["ok"] else "NO"
        return [self.table, *(f"{count:,}" for count in counts), verdict, f"{seconds:.1f}"]


def summary(results: Iterable[TableResult]) -> str:
    """The reports of all tables as a table of text."""
    lines = [list(_HEAD), *(result.cells for result in results)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEAD))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def run_notebook(notebook: Path, output: Path, parameters: Mapping[str, Any], kernel: Any) -> dict[str, Any]:
    """Execute a notebook in a kernel and save it as .ipynb and .html, also when it fails."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    executed, report_path = output / notebook.name, output / f"{notebook.stem}.json"
    given = {
        name: json.dumps(dict(value)) if isinstance(value, Mapping) else value for name, value in parameters.items()
    }
    logging.getLogger("papermill").setLevel(logging.ERROR)  # it warns of parameters that no cell lists
    try:
        papermill.execute_notebook(
            str(notebook),
            str(executed),
            parameters={**given, "report_path": str(report_path)},
            kernel_name="python3",
            progress_bar=False,
            km=kernel,
        )
    except PapermillExecutionError as error:
        raise IcecdcError(
            f"Notebook {notebook.stem} failed: {error.ename}: {error.evalue}",
            subject="notebook",
            value=str(executed),
            remedy="open it, or the .html beside it: the cell that failed is marked there",
        ) from error
    finally:
        if executed.exists():
            write_html(executed)
    report: dict[str, Any] = json.loads(report_path.read_text(encoding="utf-8"))
    return report


def write_html(executed: Path) -> None:
    """Write an executed notebook as a page beside it, for reading: its report is folded."""
    import nbformat
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    node = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    node.cells = [_folded(cell) for cell in node.cells]
    # Without code; and without formulas and widgets, so nothing is fetched from elsewhere.
    plain = {"exclude_input": True, "require_js_url": "", "mathjax_url": "", "jquery_url": ""}
    exporter = HTMLExporter(config=Config(HTMLExporter=plain))  # type: ignore[no-untyped-call]
    html, _ = exporter.from_notebook_node(node)
    executed.with_suffix(".html").write_text(html, encoding="utf-8")


def _folded(cell: Any) -> Any:
    """Fold the report of the last cell: it is JSON, for programs."""
    for output in cell.get("outputs", []) if "report" in cell.metadata.get("tags", []) else []:
        if output.output_type == "stream":
            text = (
                f"<details><summary>The report as JSON</summary><pre>{escape(_indented(output.text))}</pre></details>"
            )
            output.update(output_type="display_data", data={"text/html": text}, metadata={})
            del output["text"], output["name"]
    return cell


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:  # what a notebook printed that failed there
        return text
