"""The report of a validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icecdc_core.reporting.reports.base import Report, optional_text
from icecdc_core.reporting.text_tables import text_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ValidationReport(Report):
    """How the index compares with the table.

    Attributes:
        ok: Whether they are equal.
        source_rows: Rows of the table that were compared.
        index_documents: Documents of the index that were compared.
        missing: Rows without a document.
        extra: Documents without a row.
        stale: Documents whose content differs from their row.
        missing_ids: Some of their document ids.
        extra_ids: Some of their document ids.
        stale_ids: Some of their document ids.
        table: ``catalog.namespace.table``.
        index: The alias that readers use.
        snapshot_id: The snapshot compared with; null for an empty table.
        position_snapshot_id: The snapshot that the index should equal; null for an empty table.
        repaired: Documents written or deleted by ``repair``; the counts above are those after it.
        seconds: Seconds the run took.
        stage_seconds: Seconds spent in each stage, by its name.
        run_id: Identifies the run in logs.
    """

    ok: bool
    source_rows: int
    index_documents: int
    missing: int = 0
    extra: int = 0
    stale: int = 0
    missing_ids: list[str] = field(default_factory=list)
    extra_ids: list[str] = field(default_factory=list)
    stale_ids: list[str] = field(default_factory=list)
    table: str = ""
    index: str = ""
    snapshot_id: int | None = None
    position_snapshot_id: int | None = None
    repaired: int = 0
    seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    run_id: str = ""

    @property
    def state(self) -> str:
        """How the run ended, one of `exit_states.EXIT_STATES`."""
        return "ok" if self.ok else "differs"

    @property
    def line(self) -> str:
        """The verdict, in a few words."""
        if self.ok:
            return f"equal, {self.source_rows:,} rows" + (f", {self.repaired:,} repaired" if self.repaired else "")
        return f"NOT equal: {self.missing:,} missing, {self.extra:,} extra, {self.stale:,} stale"

    def text(self) -> str:
        """The report as a table of plain text, with samples of the ids that differ."""
        samples = {"missing": self.missing_ids, "extra": self.extra_ids, "stale": self.stale_ids}
        found = [(f"{kind} ids", ", ".join(ids)) for kind, ids in samples.items() if ids]
        return text_table([*self.rows(), *found])

    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""
        return [
            ("verdict", "equal" if self.ok else "NOT equal"),
            ("table", self.table),
            ("index", self.index),
            ("snapshot compared", optional_text(self.snapshot_id)),
            ("snapshot of the index", optional_text(self.position_snapshot_id)),
            ("rows in table", f"{self.source_rows:,}"),
            ("documents in index", f"{self.index_documents:,}"),
            ("missing", f"{self.missing:,}"),
            ("extra", f"{self.extra:,}"),
            ("stale", f"{self.stale:,}"),
            ("repaired", f"{self.repaired:,}"),
            ("seconds", f"{self.seconds:,.1f}"),
        ]

    def differences(self) -> pd.DataFrame:
        """The ids that differ (a sample), with what is wrong with each."""
        import pandas as pd

        from icecdc_core.reporting.frames import NotebookFrame

        found = [("missing", self.missing_ids), ("extra", self.extra_ids), ("stale", self.stale_ids)]
        frame = pd.DataFrame(
            [(kind, identifier) for kind, ids in found for identifier in ids],
            columns=["difference", "document id"],
        )
        return NotebookFrame.of(frame, empty=f"None: all {self.source_rows:,} documents equal their rows.")

    def figure(self) -> Figure:
        """Rows against documents, the differences, and the time every stage took."""
        from icecdc_core.reporting import figures

        return figures.validation_figure(self.to_dict())
