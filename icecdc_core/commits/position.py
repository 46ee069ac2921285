"""Positions and batches: their fields, how they are stored, and which stored positions are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from icecdc_core.commits.lease import LeaseHolder
from icecdc_core.errors import OpenSearchRequestError, PositionError

FORMAT = 2
"""The format of a stored position. It grows when an older release could misread it; a position without one has 1."""

_DOCUMENT_FIELDS = frozenset({"type", "format", "owner", "updated_at"})


@dataclass(frozen=True)
class Batch:
    """A begun batch."""

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
    cuts: list[int | None] = field(default_factory=list)


@dataclass(frozen=True)
class Position:
    """The state of an index: which snapshot it is in sync with, and the batch that was begun."""

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
    unfinished_specs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def exists(self) -> bool:
        """Whether a batch was ever committed."""
        return bool(self.physical_index)

    @property
    def committed_index(self) -> tuple[str, str, str]:
        """The readers' alias, the committed index, and the index of a begun export (or an empty string)."""
        return self.index, self.physical_index, self.begun_export

    @property
    def begun_export(self) -> str:
        """The index of a begun export; empty: no export is begun."""
        return self.batch.physical_index if self.batch and self.batch.kind == "export" else ""


_READER = TypeAdapter(Position)


def position_document(position: Position, holder: LeaseHolder | None) -> dict[str, Any]:
    """Return the document of a position."""
    return {
        "type": "position",
        "format": FORMAT,
        **asdict(position),
        "owner": asdict(holder.renewed_now()) if holder else None,
        "updated_at": datetime.now(UTC).isoformat(),
    }


def parse_position(source: Mapping[str, Any]) -> Position:
    """Return the position of a document."""
    index, stored_format = source.get("index"), source.get("format", 1)
    if not isinstance(stored_format, int) or not 1 <= stored_format <= FORMAT:
        raise PositionError(
            f"The position of '{index}' has format {stored_format!r}, this release knows up to {FORMAT}",
            subject="index",
            value=index,
            remedy="use the release of icecdc that wrote it, or a newer one",
        )
    try:
        position = _READER.validate_python({name: source[name] for name in source.keys() - _DOCUMENT_FIELDS})
    except ValidationError as error:
        problems = [(".".join(map(str, each["loc"])), each) for each in error.errors(include_url=False)]
        raise _unreadable_error(index, [_problem(name, each["type"], each["msg"]) for name, each in problems]) from None
    schemas = {"schema": position.schema, "batch.schema": position.batch.schema if position.batch else ""}
    if wrong := [name for name, text in schemas.items() if text and not _is_schema(text)]:
        raise _unreadable_error(index, [_problem(name, "", "it is not an Iceberg schema as JSON") for name in wrong])
    holder = source.get("owner")
    if not isinstance(holder, (dict, type(None))):
        raise _unreadable_error(index, [_problem("owner", "", "it is not an object")])
    if unknown := sorted((holder or {}).keys() - LeaseHolder.__dataclass_fields__.keys()):
        raise _unreadable_error(
            index, [_problem(f"owner.{name}", "unexpected_keyword_argument", "") for name in unknown]
        )
    texts = ("run_id", "host", "started", "since")
    if wrong := [name for name in texts if not isinstance((holder or {}).get(name, ""), str)]:
        raise _unreadable_error(index, [_problem(f"owner.{name}", "", "it is not a string") for name in wrong])
    return position


def _is_schema(text: str) -> bool:
    """Whether a text is an Iceberg schema as JSON, as far as schemas are compared."""
    try:
        return _is_struct(json.loads(text))
    except (ValueError, RecursionError):
        return False


def _is_struct(value: object) -> bool:
    fields = value.get("fields") if isinstance(value, dict) else None
    return isinstance(fields, list) and all(
        isinstance(field, dict)
        and isinstance(field.get("id"), int)
        and isinstance(field.get("name"), str)
        and _is_type(field.get("type"))
        for field in fields
    )


def _is_type(value: object) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, str)
    if value.get("type") == "struct":
        return _is_struct(value)
    parts = ("element",) if value.get("type") == "list" else ("key", "value")
    return all(isinstance(value.get(f"{part}-id"), int) and _is_type(value.get(part)) for part in parts)


def _problem(name: str, kind: str, message: str) -> str:
    return f"{name} is unknown" if kind == "unexpected_keyword_argument" else f"{name}: {message}"


def _unreadable_error(index: Any, problems: list[str]) -> PositionError:
    return PositionError(
        f"The position of '{index}' cannot be read: {'; '.join(problems)}",
        subject="index",
        value=index,
        remedy="if a newer release of icecdc wrote it, use that release; if somebody edited it, undo the edit, or "
        "delete the position and run the export",
    )


def source_of(answer: Any, doing: str) -> dict[str, Any]:
    """Return the source of a document."""
    found = answer.get("_source") if isinstance(answer, dict) else None
    if isinstance(answer, dict) and "_id" in answer and "_source" not in answer:
        raise PositionError(
            f"The index '{answer.get('_index')}' does not store `_source`, so no position can be read from it",
            subject="positions_index",
            value=answer.get("_index"),
            remedy="find the index template that switches `_source` off and exclude this index; then restore the "
            "index, or delete it and run the exports",
        )
    if not isinstance(found, dict):
        raise _unusable_error(doing)
    return found


def sources_of(answer: Any, doing: str) -> list[dict[str, Any]]:
    """Return the sources of the hits of a search."""
    hits = answer.get("hits") if isinstance(answer, dict) else None
    found = hits.get("hits") if isinstance(hits, dict) else None
    if not isinstance(found, list):
        raise _unusable_error(doing)
    return [source_of(hit, doing) for hit in found]


def version_of(answer: Any, doing: str) -> tuple[int, int]:
    """Return the sequence number and the primary term of a document."""
    found = (answer.get("_seq_no"), answer.get("_primary_term")) if isinstance(answer, dict) else (None, None)
    if not isinstance(found[0], int) or not isinstance(found[1], int):
        raise _unusable_error(doing)
    return found[0], found[1]


def _unusable_error(doing: str) -> OpenSearchRequestError:
    return OpenSearchRequestError(
        f"OpenSearch gave no usable answer while {doing}",
        subject="opensearch_url",
        remedy="check the proxy or gateway in front of OpenSearch; run again",
    )
