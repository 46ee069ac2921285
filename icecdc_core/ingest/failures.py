"""What Spark, Iceberg and Kafka say when an ingest fails, as typed errors."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from icecdc_core.errors import IcecdcError, IngestWriteError, LostOffsetsError
from icecdc_core.ingest.kafka.topics import typed as typed_kafka
from icecdc_core.secrets import masked
from icecdc_core.session.java_causes import root_cause
from icecdc_core.table.read_failures import known_failure

_LOST = re.compile(r"data may have been lost|Some data may have been lost|OffsetOutOfRangeException|failOnDataLoss")
_KAFKA = re.compile(r"org\.apache\.kafka\.|kafkashaded\.")


def typed_failure(error: Exception, table: str) -> IcecdcError:
    """The typed error for what happened while a table was written."""
    known, text = _foreseen(error)
    if known is not None:
        return known
    reason = masked(text.strip().partition("\n")[0])[:500]
    return IngestWriteError(
        f"The table could not be written: {reason}",
        subject="table",
        value=table,
        remedy="see to the cause; the records are taken again by the next run",
    )


def typed_stream_failure(error: Exception, bootstrap_servers: str) -> IcecdcError | None:
    """The typed error for what ended the stream itself; None if nobody knows it."""
    known, text = _foreseen(error)
    return known or (typed_kafka(text, bootstrap_servers) if _KAFKA.search(text) else None)


def _foreseen(error: Exception) -> tuple[IcecdcError | None, str]:
    """What can happen to any part of an ingest, and the text of the failure."""
    if isinstance(error, IcecdcError):
        return error, str(error)
    text = root_cause(error) if isinstance(error, (PySparkException, Py4JError)) else str(error)
    known = known_failure(text)
    if known is None and _LOST.search(text):
        known = LostOffsetsError(
            "Records were removed from the topic while they were about to be read",
            subject="topics",
            remedy="run again: what is gone is named then, and on_lost_offsets says what to do about it",
        )
    return known, text
