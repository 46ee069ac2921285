"""Preconditions of a sync: whether the changes since a position can be read, checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icecdc_core.documents.spec import SPEC_KEYS, spec_changes
from icecdc_core.errors import HistoryGapError, IcecdcError, SchemaChangeError, TableReplacedError
from icecdc_core.table.schemas.changes import is_additive, schema_change
from icecdc_core.table.snapshots import history_gap_error

if TYPE_CHECKING:
    from icecdc_core.commits.position_format import Position
    from icecdc_core.table.source import Source

_GAP_POLICY, _SCHEMA_POLICY = "on_history_gap", "on_schema_change"
_REEXPORT = "run the export (it builds a new index behind the alias, without downtime), or set {}=reexport"


@dataclass(frozen=True)
class FailedPrecondition:
    """Why the changes since a position cannot be read.

    Attributes:
        policy: The parameter that says what to do then.
        error: The error, if it says `fail`.
    """

    policy: str
    error: IcecdcError


def check_preconditions(position: Position, source: Source) -> FailedPrecondition | None:
    """Compare a position with the current state of its table.

    Args:
        position: The position.
        source: The table.

    Returns:
        The first precondition that fails; None when the changes can be read.
    """
    failures = (check(position, source) for check in _CHECKS)
    return next((failed for failed in failures if failed is not None), None)


def _table_replaced(position: Position, source: Source) -> FailedPrecondition | None:
    if position.table_uuid == source.table_uuid:
        return None
    return FailedPrecondition(
        _GAP_POLICY,
        TableReplacedError(
            f"'{source.table.name}' was dropped and created again since the index was written",
            subject="table_uuid",
            value=source.table_uuid,
            remedy=_REEXPORT.format(_GAP_POLICY),
        ),
    )


def _snapshot_expired(position: Position, source: Source) -> FailedPrecondition | None:
    begun = (*position.batch.cuts, position.batch.to_snapshot_id) if position.batch else ()
    for snapshot_id in (position.snapshot_id, *begun):
        if snapshot_id is not None and (gap := history_gap_error(source.metadata, snapshot_id)) is not None:
            return FailedPrecondition(_GAP_POLICY, gap)
    return None


def _no_current_snapshot(position: Position, source: Source) -> FailedPrecondition | None:
    if position.snapshot_id is None or source.head is not None:
        return None
    return FailedPrecondition(
        _GAP_POLICY,
        HistoryGapError(
            f"'{source.table.name}' has no current snapshot any more, but the index has snapshot "
            f"{position.snapshot_id}",
            subject="branch",
            value=source.branch,
            remedy=_REEXPORT.format(_GAP_POLICY),
        ),
    )


def _other_selection(position: Position, source: Source) -> FailedPrecondition | None:
    # The position of another release may have more or fewer parts of a selection.
    stored, current = position.selection, source.stored_selection
    keys = (stored.keys() | current.keys()) - SPEC_KEYS
    # Earlier releases did not keep the zone for every expression that depends on it, or kept it for others too.
    if "time_zone" not in stored or "time_zone" not in current:
        keys -= {"time_zone"}
    changed = sorted(key for key in keys if stored.get(key) != current.get(key))
    if not changed:
        return None
    were = ", ".join(f"{key}={stored.get(key)!r}" for key in changed)
    return FailedPrecondition(
        _SCHEMA_POLICY,
        SchemaChangeError(
            f"The index was built with another {', '.join(changed)}: {were}",
            subject=changed[0],
            value=current.get(changed[0]),
            remedy=_REEXPORT.format(_SCHEMA_POLICY),
        ),
    )


def _other_spec(position: Position, source: Source) -> FailedPrecondition | None:
    new_fields = source.fields_since(position.schema)
    changes = spec_changes(
        position.selection, source.stored_selection, new_fields, source.schema, source.number_of_shards
    )
    breaking = [str(change) for change in changes if not change.in_place]
    if not breaking:
        return None
    return FailedPrecondition(
        _SCHEMA_POLICY,
        SchemaChangeError(
            f"The index '{position.index}' was built with another mapping or other settings: {'; '.join(breaking)}",
            subject=_SCHEMA_POLICY,
            value="fail",
            remedy=_REEXPORT.format(_SCHEMA_POLICY),
        ),
    )


def _other_schema(position: Position, source: Source) -> FailedPrecondition | None:
    if not position.schema or position.schema == source.schema_json:
        return None
    differences = schema_change(position.schema, source.schema_json)
    if is_additive(differences) and not source.recomputes(differences):
        return None
    changes = "; ".join(str(change) for change in differences)
    return FailedPrecondition(
        _SCHEMA_POLICY,
        SchemaChangeError(
            f"The schema of '{source.table.name}' changed: {changes}",
            subject=_SCHEMA_POLICY,
            value="fail",
            remedy=_REEXPORT.format(_SCHEMA_POLICY),
        ),
    )


_CHECKS = (_table_replaced, _snapshot_expired, _no_current_snapshot, _other_selection, _other_spec, _other_schema)
