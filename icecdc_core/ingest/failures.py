"""Typed errors for failures of Spark, Iceberg and Kafka during an ingest."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from icecdc_core.errors import IcecdcError, IngestWriteError, LostOffsetsError
from icecdc_core.ingest.kafka.topics import typed_error as typed_kafka
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.java_causes import causes, root_cause
from icecdc_core.table.read_failures import known_failure

_LOST = "OffsetOutOfRangeException"
# Spark's own message. Other failures of its Kafka source have the same class.
_LOST_TEXT = re.compile("data may have been lost|failOnDataLoss")
# By text: many exceptions of Kafka have no stack trace, so only the text has their package.
_KAFKA = re.compile(r"org\.apache\.kafka\.|kafkashaded\.")


def typed_failure(error: IcecdcError | PySparkException | Py4JError, table: str) -> IcecdcError:
    """Return the typed error for a failed write."""
    typed, text = _typed_and_text(error)
    if typed is not None:
        return typed
    reason = mask_secrets(text.strip().partition("\n")[0])[:500]
    return IngestWriteError(
        f"The table could not be written: {reason}",
        subject="table",
        value=table,
        remedy="remove the cause; the next run reads the records again",
    )


def typed_stream_failure(error: PySparkException | Py4JError, bootstrap_servers: str) -> IcecdcError | None:
    """Return the typed error for a failure of the stream itself; None for an unknown one."""
    typed, text = _typed_and_text(error)
    return typed or (typed_kafka(error, bootstrap_servers) if _KAFKA.search(text) else None)


def _typed_and_text(error: IcecdcError | PySparkException | Py4JError) -> tuple[IcecdcError | None, str]:
    """Return the typed error for failures of any stage, None for others, and the failure's text."""
    if isinstance(error, IcecdcError):
        return error, str(error)
    text = root_cause(error)
    typed = known_failure(text)
    if typed is None and (_LOST_TEXT.search(text) or any(cause.kind == _LOST for cause in causes(error))):
        typed = LostOffsetsError(
            "Records were removed from the topic just before they were read",
            subject="topics",
            remedy="run again: the error of that run names the lost records; on_lost_offsets decides what happens then",
        )
    return typed, text
