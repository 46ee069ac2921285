"""What can happen to one identifier over several steps, and what can only happen where two rows have it."""

from __future__ import annotations

# A step is its changes (D, I or DI); "." is a step in which the identifier does not occur.
ACROSS_STEPS = {
    "one row": ["I", "D", "DI", "I D", "I DI", "I . D", "D I", "D . I", "DI DI", "DI D", "I DI D I DI D", "D I D I"],
    "two rows": ["I I", "I . I", "D D", "D . D", "DI I", "D DI", "I D I I", "D I I", "D DI I", "I DI I", "D D I I"],
}


def across_steps(id: int, steps: str, value: float = 1.0) -> list[tuple[int, float, str, int]]:
    """Return the rows (id, value, D or I, step); all have one value, so that an update looks like a carryover."""
    return [(id, value, side, step) for step, sides in enumerate(steps.split()) for side in sides if side != "."]
