"""What a position is, how it is stored, and what is refused: another format, unknown fields, a guessed mapping."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from icecdc_core.commits.lease import LeaseHolder
from icecdc_core.errors import OpenSearchRequestError, PositionError

FORMAT = 2
"""Grows when an older release could misread what this one writes. Positions without a format have 1."""

_OF_THE_DOCUMENT = frozenset({"type", "format", "owner", "updated_at"})


@dataclass(frozen=True)
class Batch:
    """A begun batch.

    Attributes:
        kind: ``export``, ``sync`` or ``repair``.
        epoch: Number of the batch; the documents' versions are made of it.
        from_snapshot_id: Exclusive start of the range; None for an export.
        to_snapshot_id: Inclusive end of the range; None for the export of an empty table.
        physical_index: The index that is written.
        table_uuid: Identity of the table that is read.
        selection: What of the table is read, see ``Source.stored_selection``.
        schema: The Iceberg schema (JSON) of the documents it writes.
        groups_done: For an export, the file groups whose documents are in.
        rejected: For an export, the documents of those groups that were rejected.
        group_bytes: For an export, the group size the groups were cut with, in bytes.
        groups_digest: For an export, a digest of the groups' data files, in order.
        on_duplicate_identifier: The policy the batch was begun with; empty in one that an older release began.
        index_uuid: For an export, the identity of the physical index it created; empty until that is recorded.
        index_digest: For an export, a digest of that index's settings and mapping as it was created.
        failure: Why the last attempt ended, when it ended by itself.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: str
    epoch: int
    from_snapshot_id: int | None
    to_snapshot_id: int | None
    physical_index: str
    table_uuid: str = ""
    selection: dict[str, Any] = field(default_factory=dict)
    schema: str = ""
    groups_done: int = 0
    rejected: int = 0
    group_bytes: int = 0
    groups_digest: str = ""
    on_duplicate_identifier: str = ""
    index_uuid: str = ""
    index_digest: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Position:
    """How far an index is.

    Attributes:
        index: The alias that readers use.
        table: ``catalog.namespace.table``.
        table_uuid: Identity of the table; a re-created table has another.
        snapshot_id: The snapshot the index equals; None before the first commit.
        epoch: The highest epoch ever begun.
        physical_index: The index behind the alias; empty before the first commit.
        selection: What of the table is indexed: branch, columns, row filter, identifier columns.
        schema: The Iceberg schema (JSON) the mapping was last made for.
        batch: The begun batch, if any.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    index: str
    table: str
    table_uuid: str
    snapshot_id: int | None = None
    epoch: int = 0
    physical_index: str = ""
    selection: dict[str, Any] = field(default_factory=dict)
    schema: str = ""
    batch: Batch | None = None

    @property
    def exists(self) -> bool:
        """Whether anything was ever committed."""
        return bool(self.physical_index)

    @property
    def committed_index(self) -> tuple[str, str, str]:
        """The alias of the readers, the committed index, and the index of a begun export (or an empty string)."""
        exported = self.batch.physical_index if self.batch and self.batch.kind == "export" else ""
        return self.index, self.physical_index, exported


_READER = TypeAdapter(Position)


def position_document(position: Position, owner: LeaseHolder | None) -> dict[str, Any]:
    """Return a position and who holds it as they are stored."""
    return {
        "type": "position",
        "format": FORMAT,
        **asdict(position),
        "owner": asdict(owner.renewing()) if owner else None,
        "updated_at": datetime.now(timezone.utc).isoformat(),
    }


def stored_position(source: Mapping[str, Any]) -> Position:
    """Return the position that a document holds.

    Raises:
        PositionError: A newer release wrote it, or it has unknown, missing or wrong fields.
    """
    index, written = source.get("index"), source.get("format", 1)
    if not isinstance(written, int) or not 1 <= written <= FORMAT:
        raise PositionError(
            f"The position of '{index}' has format {written!r}, this release knows up to {FORMAT}",
            subject="index",
            value=index,
            remedy="use the release of icecdc that wrote it, or a newer one",
        )
    try:
        position = _READER.validate_python({name: source[name] for name in source.keys() - _OF_THE_DOCUMENT})
    except ValidationError as error:
        problems = [(".".join(map(str, each["loc"])), each) for each in error.errors(include_url=False)]
        raise _unreadable(index, [_problem(name, each["type"], each["msg"]) for name, each in problems]) from None
    schemas = {"schema": position.schema, "batch.schema": position.batch.schema if position.batch else ""}
    if wrong := [name for name, text in schemas.items() if text and not _is_schema(text)]:
        raise _unreadable(index, [_problem(name, "", "it is not an Iceberg schema as JSON") for name in wrong])
    holder = source.get("owner")
    if not isinstance(holder, (dict, type(None))):
        raise _unreadable(index, [_problem("owner", "", "it is not an object")])
    if unknown := sorted((holder or {}).keys() - LeaseHolder.__dataclass_fields__.keys()):
        raise _unreadable(index, [_problem(f"owner.{name}", "unexpected_keyword_argument", "") for name in unknown])
    texts = ("run_id", "host", "started", "since")
    if wrong := [name for name in texts if not isinstance((holder or {}).get(name, ""), str)]:
        raise _unreadable(index, [_problem(f"owner.{name}", "", "it is not a text") for name in wrong])
    return position


def _is_schema(text: str) -> bool:
    """Whether a text has the shape of an Iceberg schema: an object with a list of fields."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return False
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return isinstance(fields, list) and all(
        isinstance(field, dict) and field.keys() >= {"id", "name", "type"} for field in fields
    )


def _problem(name: str, kind: str, message: str) -> str:
    return f"{name} is unknown" if kind == "unexpected_keyword_argument" else f"{name}: {message}"


def _unreadable(index: Any, problems: list[str]) -> PositionError:
    return PositionError(
        f"The position of '{index}' cannot be read: {'; '.join(problems)}",
        subject="index",
        value=index,
        remedy="if a newer release of icecdc wrote it, use that; if somebody edited it, undo that, or delete the "
        "position and run the export",
    )


def source_of(answer: Any, doing: str) -> dict[str, Any]:
    """Return the document in an answer or a hit.

    Raises:
        OpenSearchRequestError: The answer is not one.
        PositionError: The index keeps no sources.
    """
    found = answer.get("_source") if isinstance(answer, dict) else None
    if isinstance(answer, dict) and "_id" in answer and "_source" not in answer:
        raise PositionError(
            f"The index '{answer.get('_index')}' keeps no sources, so no position can be read from it",
            subject="positions_index",
            value=answer.get("_index"),
            remedy="find the index template that switches `_source` off and leave this index out of it; then restore "
            "the index, or delete it and run the exports",
        )
    if not isinstance(found, dict):
        raise _unusable(doing)
    return found


def sources_of(answer: Any, doing: str) -> list[dict[str, Any]]:
    """Return the documents in the answer to a search; raises as `source_of` does."""
    hits = answer.get("hits") if isinstance(answer, dict) else None
    found = hits.get("hits") if isinstance(hits, dict) else None
    if not isinstance(found, list):
        raise _unusable(doing)
    return [source_of(hit, doing) for hit in found]


def version_of(answer: Any, doing: str) -> tuple[int, int]:
    """Return the sequence number and the primary term in an answer.

    Raises:
        OpenSearchRequestError: It has none.
    """
    found = (answer.get("_seq_no"), answer.get("_primary_term")) if isinstance(answer, dict) else (None, None)
    if not isinstance(found[0], int) or not isinstance(found[1], int):
        raise _unusable(doing)
    return found[0], found[1]


def _unusable(doing: str) -> OpenSearchRequestError:
    return OpenSearchRequestError(
        f"OpenSearch gave no usable answer while {doing}",
        subject="opensearch_url",
        remedy="check what stands between icecdc and OpenSearch; run again",
    )
