"""The problem with the value of a parameter, and its remedy: every check of a value raises it; pure."""

from __future__ import annotations

from pydantic_core import PydanticCustomError


def parameter_problem(message: str, remedy: str, *, show: bool = True) -> PydanticCustomError:
    """The problem with a value."""
    return PydanticCustomError("refused", "{message}", {"message": message, "remedy": remedy, "show": show})
