"""What forbids taking the changes since a position, found before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icecdc_core.errors import HistoryGapError, IcecdcError, SchemaChangeError, TableReplacedError
from icecdc_core.table.schema_changes import is_additive, schema_change
from icecdc_core.table.snapshots import missing_snapshot

if TYPE_CHECKING:
    from icecdc_core.commits.positions import Position
    from icecdc_core.table.source import Source

_REEXPORT = "run the export (it builds a new index behind the alias, without downtime), or set {}=reexport"


@dataclass(frozen=True)
class FailedPrecondition:
    """Why the changes cannot be taken, and the parameter that says what to do then."""

    policy: str
    error: IcecdcError


def check_preconditions(position: Position, source: Source) -> FailedPrecondition | None:
    """Compare a position with the table as it is now; None when the changes can be taken."""
    name, config_gap, config_schema = source.table.name, "on_history_gap", "on_schema_change"
    if position.table_uuid != source.table_uuid:
        return FailedPrecondition(
            config_gap,
            TableReplacedError(
                f"'{name}' was dropped and created again since the index was written",
                subject="table_uuid",
                value=source.table_uuid,
                remedy=_REEXPORT.format(config_gap),
            ),
        )
    begun = position.batch.to_snapshot_id if position.batch else None
    for snapshot_id in (position.snapshot_id, begun):
        if snapshot_id is not None and (gap := missing_snapshot(source.metadata, snapshot_id)) is not None:
            return FailedPrecondition(config_gap, gap)
    if position.snapshot_id is not None and source.head is None:
        return FailedPrecondition(
            config_gap,
            HistoryGapError(
                f"'{name}' has no current snapshot any more, but the index holds snapshot {position.snapshot_id}",
                subject="branch",
                value=source.branch,
                remedy=_REEXPORT.format(config_gap),
            ),
        )
    # A position of another release may know more or fewer parts of a selection.
    known, wanted = position.selection, source.stored_selection
    if changed := sorted(key for key in known.keys() | wanted.keys() if known.get(key) != wanted.get(key)):
        return FailedPrecondition(
            config_schema,
            SchemaChangeError(
                f"The index was built with other {', '.join(changed)}: "
                + ", ".join(f"{key}={known.get(key)!r}" for key in changed),
                subject=changed[0],
                value=wanted.get(changed[0]),
                remedy=_REEXPORT.format(config_schema),
            ),
        )
    current = source.schema_json
    if position.schema and position.schema != current:
        changes = schema_change(position.schema, current)
        if not is_additive(changes):
            return FailedPrecondition(
                config_schema,
                SchemaChangeError(
                    f"The schema of '{name}' changed: " + "; ".join(str(change) for change in changes),
                    subject="on_schema_change",
                    value="fail",
                    remedy=_REEXPORT.format(config_schema),
                ),
            )
    return None
