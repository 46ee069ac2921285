"""The summary of one job for many indexes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from icecdc_core.reporting.reports import Report
from icecdc_core.reporting.text_tables import text_table

WORST_FIRST = (
    *("failed", "lost", "data", "config", "access", "reexport", "differs", "partial", "retry", "locked", "ok"),
)
"""The states, those first that a retry does not help."""

_LONGEST_ERROR = 100


@dataclass(frozen=True)
class ManyReport(Report):
    """How a job ended for each of many indexes.

    Attributes:
        indexes: The report of each index by its name, in the order of the file; the failure report if
            its job failed.
        seconds: Seconds that all of them took together.
        tracebacks: Where unexpected errors came from, by index.
    """

    indexes: dict[str, Report | dict[str, Any]]
    seconds: float = 0.0
    tracebacks: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def states(self) -> dict[str, str]:
        """How the job of each index ended."""
        return {name: str(_values(report)["state"]) for name, report in self.indexes.items()}

    @property
    def state(self) -> str:
        """The worst of the states."""
        return min(self.states.values(), key=WORST_FIRST.index, default="ok")

    @property
    def failures(self) -> dict[str, str]:
        """The message of each job that failed, by index."""
        return {name: str(found["message"]) for name, found in self.indexes.items() if isinstance(found, dict)}

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        indexes = {name: _values(report) for name, report in self.indexes.items()}
        return {"state": self.state, "indexes": indexes, "seconds": self.seconds}

    def rows(self) -> list[tuple[str, str]]:
        """One line for each index."""
        return [(name, state) for name, state in self.states.items()]

    def of(self, names: list[str]) -> ManyReport:
        """The report of some of the indexes."""
        return replace(self, indexes={name: self.indexes[name] for name in names})

    def text(self) -> str:
        """The report as a table of plain text, an index a row."""
        rows, problems = [("index", "state", "what", "seconds", "error")], ""
        for name, report in self.indexes.items():
            line, error = "", ""
            if isinstance(report, dict):
                error = _shortened(f"{report['error']}: {report['message']}")
            else:
                line, found = report.line, getattr(report, "problems", [])
                error = _shortened(found[0]) if found else ""
                problems += "".join(f"\n{name}: {problem}" for problem in found)
            seconds = _values(report).get("seconds")
            rows.append((name, self.states[name], line, "" if seconds is None else f"{seconds:,.1f}", error))
        return f"{text_table(rows, numbers=(3,))}\n{problems}\n{self.state} in {self.seconds:,.1f} s"


def _values(report: Report | dict[str, Any]) -> dict[str, Any]:
    return report if isinstance(report, dict) else report.to_dict()


def _shortened(text: str) -> str:
    first = text.splitlines()[0]
    return first if len(first) <= _LONGEST_ERROR else f"{first[:_LONGEST_ERROR]}..."
