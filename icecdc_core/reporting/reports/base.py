"""What all reports can do: plain data, JSON, a table of text, and a table for a notebook."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from icecdc_core.reporting.text_tables import text_table

if TYPE_CHECKING:
    import pandas as pd


class Report(ABC):
    """Base class of all reports."""

    @property
    def state(self) -> str:
        """How the run ended, one of `exit_states.EXIT_STATES`."""
        return "ok"

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        return {**asdict(self), "state": self.state}  # type: ignore[call-overload]

    def to_json(self) -> str:
        """The report as one JSON object on one line."""
        return json.dumps(self.to_dict(), default=str, allow_nan=False)

    @property
    def line(self) -> str:
        """What came out, in a few words."""
        return ""

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""

    def text(self) -> str:
        """The report as a table of plain text, for a terminal."""
        return text_table([row for row in self.rows() if row[1]])

    def summary(self) -> pd.DataFrame:
        """The report as a small table for a notebook."""
        import pandas as pd

        from icecdc_core.reporting.frames import NotebookFrame

        rows = [row for row in self.rows() if row[1]]
        frame = pd.DataFrame(rows, columns=["", "value"]).set_index("")
        return NotebookFrame.of(frame.rename_axis(None))


def optional_text(value: object) -> str:
    """Return a value as a row of a report shows it; an empty text, which leaves the row out, for None."""
    return "" if value is None else str(value)
