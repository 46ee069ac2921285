"""Durations with a unit, such as 500ms, 10s, 5m, 1h or 1d; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

MAX_LEASE_SECONDS = 3600.0
"""The longest lease: how long an index stays locked after a run died on another machine."""


def parse_seconds(text: str, units: Mapping[str, float] = UNIT_SECONDS) -> float | None:
    """Return the seconds of a number with a unit, in any case; None if the text is no such duration."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)\s*({'|'.join(units)})", text.strip().lower())
    return float(match[1]) * units[match[2]] if match else None


def parse_duration(value: object) -> object:
    """A number of seconds, from a number or a text such as 500ms, 10s, 5m, 1h or 1d; any other value as it is."""
    seconds = parse_seconds(value) if isinstance(value, str) else None
    return value if seconds is None else seconds
