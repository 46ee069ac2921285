"""Preconditions of a sync: whether the changes since a position can be read, checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icecdc_core.documents.spec import SPEC_KEYS, spec_changes
from icecdc_core.errors import HistoryGapError, IcecdcError, SchemaChangeError, TableReplacedError
from icecdc_core.table.schemas.changes import is_additive, schema_change
from icecdc_core.table.snapshots import history_gap_error

if TYPE_CHECKING:
    from icecdc_core.commits.positions import Position
    from icecdc_core.table.source import Source

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
    name, gap_policy, schema_policy = source.table.name, "on_history_gap", "on_schema_change"
    if position.table_uuid != source.table_uuid:
        return FailedPrecondition(
            gap_policy,
            TableReplacedError(
                f"'{name}' was dropped and created again since the index was written",
                subject="table_uuid",
                value=source.table_uuid,
                remedy=_REEXPORT.format(gap_policy),
            ),
        )
    begun = (*position.batch.cuts, position.batch.to_snapshot_id) if position.batch else ()
    for snapshot_id in (position.snapshot_id, *begun):
        if snapshot_id is not None and (gap := history_gap_error(source.metadata, snapshot_id)) is not None:
            return FailedPrecondition(gap_policy, gap)
    if position.snapshot_id is not None and source.head is None:
        return FailedPrecondition(
            gap_policy,
            HistoryGapError(
                f"'{name}' has no current snapshot any more, but the index has snapshot {position.snapshot_id}",
                subject="branch",
                value=source.branch,
                remedy=_REEXPORT.format(gap_policy),
            ),
        )
    # The position of another release may have more or fewer parts of a selection.
    stored, current = position.selection, source.stored_selection
    keys = (stored.keys() | current.keys()) - SPEC_KEYS
    if changed := sorted(key for key in keys if stored.get(key) != current.get(key)):
        return FailedPrecondition(
            schema_policy,
            SchemaChangeError(
                f"The index was built with another {', '.join(changed)}: "
                + ", ".join(f"{key}={stored.get(key)!r}" for key in changed),
                subject=changed[0],
                value=current.get(changed[0]),
                remedy=_REEXPORT.format(schema_policy),
            ),
        )
    new_fields = source.fields_since(position.schema)
    changes = spec_changes(stored, current, new_fields, source.schema, source.number_of_shards)
    if breaking := [str(change) for change in changes if not change.in_place]:
        return FailedPrecondition(
            schema_policy,
            SchemaChangeError(
                f"The index '{position.index}' was built with another mapping or other settings: {'; '.join(breaking)}",
                subject=schema_policy,
                value="fail",
                remedy=_REEXPORT.format(schema_policy),
            ),
        )
    if position.schema and position.schema != source.schema_json:
        differences = schema_change(position.schema, source.schema_json)
        if not is_additive(differences) or source.recomputes(differences):
            return FailedPrecondition(
                schema_policy,
                SchemaChangeError(
                    f"The schema of '{name}' changed: " + "; ".join(str(change) for change in differences),
                    subject="on_schema_change",
                    value="fail",
                    remedy=_REEXPORT.format(schema_policy),
                ),
            )
    return None
