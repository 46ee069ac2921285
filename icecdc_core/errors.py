"""The one family of errors: each says what is wrong, the value found, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class IcecdcError(Exception):
    """Base of everything icecdc raises on purpose.

    Args:
        message: What is wrong, without a full stop at its end.
        subject: What the message is about: a parameter, table, column, index or snapshot.
        value: The value that was found there; never a secret.
        remedy: What the reader should do now.
    """

    def __init__(self, message: str, *, subject: str = "", value: object = None, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.value = value
        self.remedy = remedy

    def __str__(self) -> str:
        text = self.message.rstrip(".")
        if self.subject and self.value is not None:
            shown = repr(self.value)
            shown = shown if len(shown) <= 2000 else f"{shown[:2000]}... ({len(shown):,} characters)"
            text += f" [{self.subject}={shown}]"
        elif self.subject:
            text += f" [{self.subject}]"
        return f"{text}. Remedy: {self.remedy}" if self.remedy else f"{text}."


class ConfigError(IcecdcError):
    """One or more parameters are wrong; `problems` holds one sentence for each."""

    def __init__(
        self,
        message: str,
        *,
        subject: str = "",
        value: object = None,
        remedy: str = "",
        problems: Sequence[str] = (),
    ) -> None:
        super().__init__(message, subject=subject, value=value, remedy=remedy)
        self.problems = list(problems) or [super().__str__()]

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0]
        return "\n".join([f"{self.message}:", *(f"- {problem}" for problem in self.problems)])


class CatalogError(IcecdcError):
    """The Iceberg catalog cannot be configured or reached."""


class TableNotFoundError(IcecdcError):
    """The source table does not exist, or is not an Iceberg table."""


class TableReplacedError(IcecdcError):
    """A table of the same name but another UUID stands where the position was taken."""


class HistoryGapError(IcecdcError):
    """The snapshot of the position is gone, so the changes since then cannot be known."""


class HiddenHistoryError(HistoryGapError):
    """The catalog shows only the latest snapshot, so changes can never be taken through it."""


class ColumnNotFoundError(IcecdcError):
    """A column that was asked for is not in the table."""


class IdentifierColumnsError(IcecdcError):
    """Identifier columns are missing, nested, of an unfit type, null in a row, or absent though needed."""


class DuplicateIdentifierError(IcecdcError):
    """Two rows of the table share one identifier, so they would share one document."""


class SchemaChangeError(IcecdcError):
    """The table's schema changed in a way the index cannot follow in place."""


class UnsupportedTypeError(IcecdcError):
    """A column's type or name cannot be held by an OpenSearch document."""


class IndexConflictError(IcecdcError):
    """An index or alias of that name exists and does not belong to this table."""


class IndexNotFoundError(IcecdcError):
    """The index that should be there is not."""


class PositionError(IcecdcError):
    """A position cannot be read: of a newer release, edited by hand, or in an index that icecdc did not create."""


class TableLockedError(IcecdcError):
    """Another run holds the table."""


class FencedError(IcecdcError):
    """This run lost the table to another one and must not write any more."""


class OpenSearchUnreachableError(IcecdcError):
    """OpenSearch does not answer."""


class OpenSearchAuthError(IcecdcError):
    """OpenSearch refuses the credentials or the permissions behind them."""


class OpenSearchRequestError(IcecdcError):
    """OpenSearch refused a request as a whole."""


class RejectedDocumentsError(IcecdcError):
    """More documents were rejected than `max_rejected_documents` allows; `dead_letters` has some of them."""

    dead_letters: Sequence[dict[str, Any]] = ()


class IndexDiffersError(IcecdcError):
    """A validation found that index and table differ, and `fail_on_difference` is set."""


class DocumentVersionError(IcecdcError):
    """A document of the index has a version above all that icecdc writes, so no repair can replace it in place."""


class JavaNotFoundError(IcecdcError):
    """No Java of a version that fits was found."""


class DownloadError(IcecdcError):
    """A file could not be fetched, or its checksum is wrong."""


class PortInUseError(IcecdcError):
    """A port that is needed is taken."""


class DiskFullError(IcecdcError):
    """There is not enough disk space."""


class ServiceStartError(IcecdcError):
    """A local service did not start or did not become healthy."""


class DependencyError(IcecdcError):
    """A package or jar that is needed is missing or of a version that does not fit."""


class DataReadError(IcecdcError):
    """Files of the table could not be read: missing, damaged or refused."""


class SparkJobError(IcecdcError):
    """Spark failed for another reason than the files: memory, an executor or a Python worker that was lost."""


class SchemaRegistryError(IcecdcError):
    """The schema registry does not answer, or refuses to."""


class SecretError(IcecdcError):
    """A reference to a secret cannot be resolved."""


class KafkaError(IcecdcError):
    """A Kafka broker refused or failed a request."""


class KafkaUnreachableError(KafkaError):
    """No Kafka broker answers."""


class KafkaAuthError(KafkaError):
    """The Kafka brokers refuse the credentials or the permissions behind them."""


class TopicNotFoundError(KafkaError):
    """A topic that is to be read does not exist."""


class LostOffsetsError(IcecdcError):
    """A topic no longer has records that were not read yet."""


class TopicReplacedError(IcecdcError):
    """A topic ends before what was read from it: it was deleted and made again."""


class TableResetError(IcecdcError):
    """A table no longer has what an ingest wrote into it: it was dropped, made again or rolled back."""


class ConcurrentIngestError(IcecdcError):
    """Another run of the same ingest, or another writer, was faster again and again."""


class IngestWriteError(IcecdcError):
    """A table could not be written by an ingest."""
