"""Requests of the driver are tried again while OpenSearch is away for a moment; each wait is bounded and logged."""

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
"""Back-pressure and passing trouble: worth another try. Everything else says that the request is wrong."""

_LONGEST_PAUSE = 10.0


class RetryingTransport(Transport):
    """Tries a request again until `retry_seconds` have passed since its first failure.

    Every request of the driver may be repeated: reads, settings and aliases are the same twice, and positions are
    written under a condition that tells a repetition from somebody else's write.
    """

    def __init__(self, *args: Any, retry_seconds: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.retry_seconds = retry_seconds
        self.deserializer = AnswerDeserializer(self.deserializer.serializers)

    def perform_request(self, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        """Perform a request as the client asks for it."""
        deadline, pause = 0.0, 0.25
        while True:
            try:
                answer = super().perform_request(method, url, *args, **kwargs)
                require_usable(method, url, answer)
                return answer
            except (ConnectionError, TransportError) as error:
                now = time.monotonic()
                deadline = deadline or now + self.retry_seconds
                if not is_transient(error) or now >= deadline:
                    raise
                left = deadline - now
                event(
                    "OpenSearch gives no usable answer; the request is tried again",
                    logging.WARNING,
                    request=f"{method} {url.partition('?')[0]}",
                    status=error.status_code,
                    seconds_left=round(left, 1),
                )
                time.sleep(min(pause, left) * random.uniform(0.5, 1.0))  # noqa: S311
                pause = min(pause * 2, _LONGEST_PAUSE)


@contextmanager
def without_retries(client: OpenSearch) -> Iterator[None]:
    """Within the block the client tries nothing again."""
    transport: Any = client.transport
    before = getattr(transport, "retry_seconds", 0.0)
    transport.retry_seconds = 0.0
    try:
        yield
    finally:
        transport.retry_seconds = before


def is_transient(error: Exception) -> bool:
    """Whether a failed request may succeed when it is sent again."""
    if isinstance(error, SSLError):
        return False
    if isinstance(error, (ConnectionError, UnusableAnswerError)):
        return True
    return isinstance(error, TransportError) and error.status_code in RETRIED_STATUSES
