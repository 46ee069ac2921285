"""What is known of the parts of an index: when each was compared, and what differed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self


@dataclass(frozen=True)
class Audit:
    physical_index: str
    compared_at: list[str]
    """When each part was last compared; empty: not yet."""
    differences: list[int]
    """What that comparison found of each part, without what a repair corrected."""
    next: int = 0
    repaired: int = 0

    @classmethod
    def of(cls, stored: Mapping[str, Any], physical_index: str, parts: int = 0) -> Self:
        """Return what is stored of so many parts (0: any number); of an index that an export made, nothing is known."""
        if stored.get("physical_index") == physical_index and parts in (0, len(stored["compared_at"])):
            return cls(**{name: stored[name] for name in cls.__dataclass_fields__})
        return cls(physical_index, [""] * parts, [0] * parts)

    def then(self, number: int, differences: int, repaired: int) -> Self:
        """Return what is known after the comparison of a part, which need not be the next one."""
        compared_at, found, following = [*self.compared_at], [*self.differences], self.next
        compared_at[number], found[number] = datetime.now(UTC).isoformat(timespec="seconds"), differences
        if number == following:
            following = (number + 1) % len(compared_at)
        repaired += self.repaired
        return replace(self, compared_at=compared_at, differences=found, next=following, repaired=repaired)

    def facts(self) -> dict[str, Any]:
        compared = [*filter(None, self.compared_at)]
        found = {
            "parts": len(self.compared_at),
            "compared": len(compared),
            "oldest_compared_at": min(compared, default=""),
        }
        return {**found, "differences": sum(self.differences), "repaired": self.repaired}
