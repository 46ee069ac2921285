"""The problem with the value of a parameter, and its remedy: every check of a value raises it; pure."""

from __future__ import annotations

from pydantic_core import PydanticCustomError


def parameter_problem(message: str, remedy: str, *, show: bool = True) -> PydanticCustomError:
    """The problem with a value.

    Args:
        message: What is wrong, as the end of a sentence that begins with the parameter.
        remedy: What to do.
        show: Whether messages may show the value.
    """
    return PydanticCustomError("refused", "{message}", {"message": message, "remedy": remedy, "show": show})
