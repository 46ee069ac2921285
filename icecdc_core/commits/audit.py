"""What is known of the parts of an index: when each was last compared, and what differed then."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any


def known_parts(stored: Mapping[str, Any], physical_index: str, parts: int = 0) -> dict[str, Any]:
    """Return what is known of so many parts (0: any number); of an index that an export made, nothing is."""
    if stored.get("physical_index") == physical_index and parts in (0, len(stored["compared_at"])):
        return dict(stored)
    known = {"physical_index": physical_index, "compared_at": [""] * parts, "differences": [0] * parts}
    return {**known, "next": 0, "repaired": 0}


def with_parts(known: dict[str, Any], numbers: Collection[int], differences: int, repaired: int) -> dict[str, Any]:
    """Return what is known after the comparison of parts, of which none need be the next one."""
    times, found, following = [*known["compared_at"]], [*known["differences"]], known["next"]
    for number in numbers:
        times[number], found[number] = datetime.now(UTC).isoformat(timespec="seconds"), differences
    following = (following + 1) % len(times) if following in numbers else following
    repaired += known["repaired"]
    return {**known, "compared_at": times, "differences": found, "next": following, "repaired": repaired}


def audit_facts(known: Mapping[str, Any]) -> dict[str, Any]:
    times = [*filter(None, known["compared_at"])]
    found = {"parts": len(known["compared_at"]), "compared": len(times), "oldest_compared_at": min(times, default="")}
    return {**found, "differences": sum(known["differences"]), "repaired": known["repaired"]}
