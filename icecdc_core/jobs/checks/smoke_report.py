"""The report of a smoke test: the environment, each check, and the failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icecdc_core.jobs.checks.report import CheckReport
from icecdc_core.reporting.text_tables import text_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SmokeReport(CheckReport):
    """What was found in an environment, and what of it works.

    Attributes:
        ok: Whether every check passed.
        table: The table beside which the scratch tables were.
        index: The index after which the scratch indexes were named.
        kind: ``smoke``.
        environment: Versions, access mode, catalog, and whether Iceberg's extensions of Spark are loaded.
        checks: Each check: ``kind`` of table, ``check``, ``state`` (passed, failed or skipped), ``seconds``, and of one
            that failed ``error``, ``message`` and ``remedy``.
        seconds: Seconds the test took.
        errors: What failed, as errors.
    """

    ok: bool
    table: str
    index: str
    kind: str = "smoke"
    environment: dict[str, str] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    errors: list[Exception] = field(default_factory=list, repr=False, compare=False)

    @property
    def line(self) -> str:
        """The verdict, in a few words."""
        return f"{sum(check['state'] == 'passed' for check in self.checks)} of {len(self.checks)} checks passed"

    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""
        verdict = ("verdict", "everything works" if self.ok else f"NOT everything works: {self.line}")
        return [verdict, *self.environment.items(), ("seconds", f"{self.seconds:,.1f}")]

    def text(self) -> str:
        """The report as a table of plain text, with every check."""
        checks = [
            (f"{check['kind']}: {check['check']}", f"{check['state']} {check.get('message', '')}".strip())
            for check in self.checks
        ]
        return text_table([*(row for row in self.rows() if row[1]), *checks])

    def findings(self) -> pd.DataFrame:
        """The checks as a table for a notebook."""
        import pandas as pd

        return pd.DataFrame(self.checks).fillna("")

    def require_ok(self) -> None:
        """Raise the first failure, if there is one."""
        if self.errors:
            raise self.errors[0]
