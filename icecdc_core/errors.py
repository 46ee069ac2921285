"""The errors of icecdc: each says what is wrong, shows the value found, and names the remedy."""

from collections.abc import Sequence
from typing import Any, ClassVar

# The words by which an error of Spark is recognized: identifiers that are not unique, or null; rows that do not fit
# into one nested object; a text that no model was asked for.
DUPLICATE_MESSAGE, NULL_MESSAGE = "duplicate identifier", "null identifier"
SEVERAL_MESSAGE, NO_VECTOR_MESSAGE = "several matches for", "no stored vector of a text of"

# The attribute of an error that holds, as HTML, what a notebook shows of the run that it ended.
CARD = "icecdc_card"
LONGEST = 2000  # characters of a server's text that are stored or shown: servers repeat whole documents in errors


def shorten(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


class IcecdcError(Exception):
    """Base class of all errors that icecdc raises.

    Args:
        message: What is wrong, without a final full stop.
        subject: The parameter, table, column, index or snapshot that the message is about.
        value: The value found there; never a secret.
        remedy: What the reader can do about it.
    """

    state: ClassVar[str] = "failed"
    """How a run ends that raises it, one of `exit_states.EXIT_STATES`."""

    def __init_subclass__(cls, state: str = "") -> None:
        cls.state = state or cls.state

    def __init__(self, message: str, *, subject: str = "", value: object = None, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.value = value
        self.remedy = remedy

    def __str__(self) -> str:
        text = self.message.rstrip(".")
        if self.subject and self.value is not None:
            text += f" [{self.subject}={shorten(repr(self.value))}]"
        elif self.subject:
            text += f" [{self.subject}]"
        return f"{text}. Remedy: {self.remedy}" if self.remedy else f"{text}."

    def _repr_html_(self) -> str | None:
        card: str | None = vars(self).get(CARD)  # what a notebook shows of an error that is returned
        return card

    def _render_traceback_(self) -> list[str]:
        """Show the card of the failed run; return what, why and what to do, without a traceback (IPython's hook)."""
        if card := vars(self).pop(CARD, ""):  # IPython asks twice
            from IPython.display import display

            display({"text/html": card, "text/plain": ""}, raw=True)  # type: ignore[no-untyped-call]
        heading = f"\x1b[1m{type(self).__name__}\x1b[0m"
        return [heading, *str(self).replace(" Remedy: ", "\n\x1b[1mWhat to do:\x1b[0m ").splitlines()]


class ConfigError(IcecdcError, state="config"):
    """One or more parameters are wrong; `problems` has one sentence for each.

    Args:
        message: What is wrong, without a final full stop.
        problems: One sentence for each wrong parameter; without any, the message is the only one.
        details: `subject`, `value` and `remedy`, as for all errors.
    """

    def __init__(self, message: str, *, problems: Sequence[str] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.problems = list(problems) or [super().__str__()]

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0]
        return "\n".join([f"{self.message}:", *(f"- {problem}" for problem in self.problems)])


def unwritable_error(
    parameter: str,
    path: str,
    error: Exception,
    remedy: str = "give a path in a folder that exists and may be written to, or leave it empty",
) -> ConfigError:
    return ConfigError(
        f"The path cannot be written: {getattr(error, 'strerror', None) or error}",
        subject=parameter,
        value=path,
        remedy=remedy,
    )


class CatalogError(IcecdcError, state="retry"):
    """The Iceberg catalog cannot be configured or reached."""


class CatalogAuthError(CatalogError, state="access"):
    """The Iceberg catalog refuses the credentials or the permissions behind them."""


class StatusUnknownError(CatalogError, state="unknown"):
    """The metadata of a table cannot be read without Spark, so its status is not known."""


class TableNotFoundError(IcecdcError, state="config"):
    """The source table does not exist, or is not an Iceberg table."""


class TableReplacedError(IcecdcError, state="reexport"):
    """The table was dropped and created again: it has the same name and another UUID."""


class HistoryGapError(IcecdcError, state="reexport"):
    """The position's snapshot has expired, so the changes since then are unknown."""


class HiddenHistoryError(HistoryGapError, state="reexport"):
    """The catalog shows only the latest snapshot, so changes cannot be read through it."""


class ColumnNotFoundError(IcecdcError, state="config"):
    """A requested column is not in the table."""


class IdentifierColumnsError(IcecdcError, state="config"):
    """Identifier columns are missing, nested, of an unsuitable type, or null in a row."""


class DuplicateIdentifierError(IcecdcError, state="data"):
    """Two rows of the table have the same identifier, so they would be one document."""


class SeveralMatchesError(IcecdcError, state="data"):
    """Several rows of a nested table match where the document has one object."""


class SchemaChangeError(IcecdcError, state="reexport"):
    """The table's schema changed in a way that the existing index cannot follow."""


class UnplannedActionError(IcecdcError, state="config"):
    """A sync would do something with an index that the plan in `only_as_planned` did not announce."""


class UnsupportedTypeError(IcecdcError, state="config"):
    """An OpenSearch document cannot contain a column of this type or name."""


class IndexConflictError(IcecdcError, state="config"):
    """An index or alias of that name exists and does not belong to this table."""


class IndexNotFoundError(IcecdcError, state="reexport"):
    """The index, its alias or its position does not exist."""


class IndexLaggingError(IcecdcError, state="lagging"):
    """An index did not get what `wait_for` waits for in time."""


class SnapshotNotFoundError(IcecdcError, state="config"):
    """An index can never have a snapshot that `wait_for` waits for: its table does not lead to it."""


class PositionError(IcecdcError, state="config"):
    """A position cannot be used: a newer release wrote it, it was edited, or its index was not created by icecdc."""


class TableLockedError(IcecdcError, state="locked"):
    """Another run has locked the index."""


class FencedError(IcecdcError, state="locked"):
    """This run lost its lock to another run and must not write any more."""


class OpenSearchUnreachableError(IcecdcError, state="retry"):
    """OpenSearch does not answer."""


class OpenSearchAuthError(IcecdcError, state="access"):
    """OpenSearch refuses the credentials or the permissions behind them."""


class OpenSearchRequestError(IcecdcError, state="retry"):
    """OpenSearch refused a request, not a single document."""


class RejectedDocumentsError(IcecdcError, state="data"):
    """More documents were rejected than `max_rejected_documents` allows; `dead_letters` has some of them."""

    dead_letters: Sequence[dict[str, Any]] = ()


class IndexDiffersError(IcecdcError, state="differs"):
    """A validation found that index and table differ, and `fail_on_difference` is set."""


class UnknownSlicesError(IcecdcError, state="config"):
    """OpenSearch slices searches by another function than the one that chooses the rows of a part."""


class DocumentVersionError(IcecdcError, state="reexport"):
    """A document has a higher version than icecdc can write, so a repair cannot replace it."""


class JavaNotFoundError(IcecdcError, state="config"):
    """No suitable Java was found."""


class DownloadError(IcecdcError, state="retry"):
    """A file could not be fetched, or its checksum is wrong."""


class PortInUseError(IcecdcError, state="config"):
    """A required port is in use."""


class DiskFullError(IcecdcError, state="retry"):
    """There is not enough disk space."""


class ServiceStartError(IcecdcError, state="retry"):
    """A local service did not start or did not become healthy."""


class DependencyError(IcecdcError, state="config"):
    """A required package or jar is missing, or its version does not fit."""


class EmbeddingError(IcecdcError, state="retry"):
    """A model of `embed` failed or took too long, or a text has no vector where no model is asked."""


class DataReadError(IcecdcError, state="data"):
    """Files of the table could not be read: missing, damaged or refused."""


class SparkJobError(IcecdcError, state="retry"):
    """Spark failed for a reason other than the table's files: memory, or a lost executor or Python worker."""


class SchemaRegistryError(IcecdcError, state="retry"):
    """The schema registry does not answer, or refuses the request."""


class SecretError(IcecdcError, state="access"):
    """A reference to a secret cannot be resolved."""


class KafkaError(IcecdcError, state="retry"):
    """A Kafka broker refused or failed a request."""


class KafkaUnreachableError(KafkaError, state="retry"):
    """No Kafka broker answers."""


class KafkaAuthError(KafkaError, state="access"):
    """The Kafka brokers refuse the credentials or the permissions behind them."""


class TopicNotFoundError(KafkaError, state="config"):
    """A topic does not exist."""


class LostOffsetsError(IcecdcError, state="lost"):
    """A topic lost records before they were read."""


class TopicReplacedError(IcecdcError, state="lost"):
    """A topic was deleted and created again: it ends before the offsets that were read."""


class TableResetError(IcecdcError, state="lost"):
    """A table lost what an ingest wrote: it was dropped, created again or rolled back."""


class SourceTruncatedError(IcecdcError, state="data"):
    """A source table was truncated, and `on_truncate` does not say what that means for its table."""


class ConcurrentIngestError(IcecdcError, state="locked"):
    """Another run of the same ingest, or another writer, won every attempt to commit."""


class FailedCheckError(IcecdcError, state="data"):
    """A batch fails one of its `checks`, so the ingest does not publish it."""


class IngestWriteError(IcecdcError, state="retry"):
    """An ingest could not write a table."""
