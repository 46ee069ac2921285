"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable


def is_true_within(seconds: float, condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def await_true(condition: Callable[[], object], seconds: float = 30) -> None:
    assert is_true_within(seconds, condition), "it did not come true"
