"""Retries of requests that fail for a moment: which failures are transient, how long to wait, when to give up."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opensearchpy import OpenSearch, Transport
from opensearchpy.exceptions import ConnectionError, SSLError, TransportError

from icecdc_core.logs import event
from icecdc_core.opensearch.answers import AnswerDeserializer, UnusableAnswerError, require_usable

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
"""Back-pressure and temporary trouble. Every other status says that the request itself is wrong."""

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0


class Backoff:
    """Growing pauses between the attempts of one request, until it has failed for some time.

    tenacity would replace only the loops around it: its clock starts with the first attempt and not with the first
    failure, so a single timeout could use up all the time, and a bulk request changes between two attempts.
    """

    def __init__(self, seconds: float, first_pause: float) -> None:
        self._seconds = seconds
        self._pause = first_pause
        self._deadline = 0.0

    def is_exhausted(self) -> bool:
        """Whether a request that just failed has failed for too long."""
        now = time.monotonic()
        self._deadline = self._deadline or now + self._seconds
        return now >= self._deadline

    @property
    def seconds_left(self) -> float:
        """Seconds until no attempt follows."""
        return round(max(self._deadline - time.monotonic(), 0.0), 1)

    def sleep(self) -> None:
        """Pause before the next attempt; half of it is random, so that many clients do not return at once."""
        left = max(self._deadline - time.monotonic(), 0.0)
        time.sleep(min(self._pause, left) * random.uniform(0.5, 1.0))  # noqa: S311
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)


class RetryingTransport(Transport):
    """Retries a request until it has failed for `retry_seconds`.

    Every request of the driver may be repeated. Reads and settings have the same effect twice. Whoever moves an alias
    recognizes that its earlier request has moved it. Positions are written under a condition that distinguishes a
    repetition from the write of another run.
    """

    def __init__(self, *args: Any, retry_seconds: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.retry_seconds = retry_seconds
        self.deserializer = AnswerDeserializer(self.deserializer.serializers)

    def perform_request(self, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        """Perform a request as the client asks for it, and repeat it while that may help."""
        backoff = Backoff(self.retry_seconds, _FIRST_PAUSE_SECONDS)
        while True:
            try:
                # The client takes its own options, such as the timeout, out of the parameters that it is given.
                again = {**kwargs, "params": dict(kwargs["params"])} if kwargs.get("params") else kwargs
                answer = super().perform_request(method, url, *args, **again)
                require_usable(method, url, answer)
                return answer
            except (ConnectionError, TransportError) as error:
                if not is_transient(error) or backoff.is_exhausted():
                    raise
                event(
                    "OpenSearch gave no usable answer; retrying the request",
                    logging.WARNING,
                    request=f"{method} {url.partition('?')[0]}",
                    status=error.status_code,
                    seconds_left=backoff.seconds_left,
                )
                backoff.sleep()


@contextmanager
def without_retries(client: OpenSearch) -> Iterator[None]:
    """Switch the client's retries off within the block."""
    transport: Any = client.transport
    before = getattr(transport, "retry_seconds", 0.0)
    transport.retry_seconds = 0.0
    try:
        yield
    finally:
        transport.retry_seconds = before


def is_transient(error: Exception) -> bool:
    """Whether a failed request may succeed on a retry."""
    if isinstance(error, SSLError):
        return False
    if isinstance(error, (ConnectionError, UnusableAnswerError)):
        return True
    return isinstance(error, TransportError) and error.status_code in RETRIED_STATUSES
