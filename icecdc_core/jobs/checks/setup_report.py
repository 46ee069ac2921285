"""The report of the setup check: versions, columns with their fields, and everything that would block a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icecdc_core.errors import IcecdcError
from icecdc_core.jobs.checks.report import CheckReport
from icecdc_core.reporting.text_tables import text_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SetupReport(CheckReport):
    """What a run depends on, and everything that would block it.

    Attributes:
        ok: Whether a run can start.
        table: ``catalog.namespace.table``.
        index: The alias that readers use.
        kind: ``setup``.
        versions: The versions of icecdc, Python, Java, Spark, Iceberg, OpenSearch and its client.
        snapshot_id: The table's current snapshot; null if it is empty or cannot be read.
        position_snapshot_id: The snapshot that the index equals; null before the first export.
        source_rows: Rows of the current snapshot; null if they cannot be read.
        identifier_columns: The columns that make a document's id.
        columns: Each column with its type, the OpenSearch field it becomes and an example query; then the fields that
            no column makes, with an empty type.
        problems: What would block a run, each with its remedy.
        notes: What is good to know.
        seconds: Seconds the check took.
        errors: The problems as errors.
    """

    ok: bool
    table: str
    index: str
    kind: str = "setup"
    versions: dict[str, str] = field(default_factory=dict)
    snapshot_id: int | None = None
    position_snapshot_id: int | None = None
    source_rows: int | None = None
    identifier_columns: list[str] = field(default_factory=list)
    columns: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    errors: list[IcecdcError] = field(default_factory=list, repr=False, compare=False)

    @property
    def line(self) -> str:
        """The verdict, in a few words."""
        return "ready" if self.ok else f"NOT ready: {len(self.problems)} problem{'s'[: len(self.problems) != 1]}"

    def text(self) -> str:
        """The report as a table of plain text, with all problems and notes."""
        found = [("problem", text) for text in self.problems] + [("note", text) for text in self.notes]
        return text_table([*(row for row in self.rows() if row[1]), *found])

    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""
        return [
            ("verdict", "ready" if self.ok else "NOT ready"),
            ("table", self.table),
            ("index", self.index),
            ("current snapshot", str(self.snapshot_id or "none")),
            ("snapshot of the index", str(self.position_snapshot_id or "none: not exported yet")),
            ("rows in table", "" if self.source_rows is None else f"{self.source_rows:,}"),
            ("identifier columns", ", ".join(self.identifier_columns) or "none"),
            *self.versions.items(),
        ]

    def mapping_table(self) -> pd.DataFrame:
        """The columns with their Iceberg types, the OpenSearch fields they become and example queries."""
        import pandas as pd

        from icecdc_core.reporting.frames import NotebookFrame

        return NotebookFrame.of(pd.DataFrame(self.columns), empty="The table cannot be read, so there is no mapping.")

    def findings(self) -> pd.DataFrame:
        """Blocking problems and notes; says so if there are none."""
        import pandas as pd

        from icecdc_core.reporting.frames import NotebookFrame

        found = [("problem", text) for text in self.problems] + [("note", text) for text in self.notes]
        frame = pd.DataFrame(found, columns=["kind", "what was found"])
        return NotebookFrame.of(frame, empty="None: a run can start.")

    def require_ready(self) -> None:
        """Raise the first blocking problem, if there is one."""
        if self.errors:
            raise self.errors[0]
