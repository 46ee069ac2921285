"""What the reports of checks share: they keep what failed as errors, which are raised and not printed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from icecdc_core.reporting.exit_states import state_of
from icecdc_core.reporting.reports import Report


class CheckReport(Report):
    """Base class of the reports of checks, which are dataclasses."""

    errors: list[Any]

    @property
    def state(self) -> str:
        """``ok``, else how a run would end now: the state of the first failure."""
        return state_of(self.errors[0]) if self.errors else "ok"

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        names = [each.name for each in fields(self) if each.name != "errors"]  # type: ignore[arg-type]
        return {**{name: getattr(self, name) for name in names}, "state": self.state}
