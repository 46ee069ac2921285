"""Whether a table still has what the next sync of a position reads: plain data, which a status knows without Spark."""

import json
from collections.abc import Sequence

from icecdc_core.commits.position import Position
from icecdc_core.errors import HistoryGapError, IcecdcError, SchemaChangeError, StatusUnknownError, TableReplacedError
from icecdc_core.table.schema_changes import STAR, SchemaChange, schema_change
from icecdc_core.table.snapshots import TableMetadata, history_gap_error

GAP_POLICY, SCHEMA_POLICY = "on_history_gap", "on_schema_change"
REEXPORT = "run the export (it builds a new index behind the alias, without downtime), or set {}=reexport"


def history_error(
    position: Position, table: str, metadata: TableMetadata, head: int | None, branch: str
) -> IcecdcError | None:
    """Return why the rows between a position and the head of a branch cannot be read; None if they can."""
    if position.table_uuid != metadata.table_uuid:
        what = f"'{table}' was dropped and created again since the index was written"
        if position.table != table:
            what = f"The index was written from another table, '{position.table}', not from '{table}'"
        remedy = REEXPORT.format(GAP_POLICY)
        return TableReplacedError(what, subject="table_uuid", value=metadata.table_uuid, remedy=remedy)
    batch = None if position.begun_export else position.batch  # an export that cannot go on starts over
    begun = [*((cut, "") for cut in batch.cuts), (batch.to_snapshot_id, batch.identity)] if batch else []
    named = [(position.snapshot_id, position.identity), *begun]
    gaps = (history_gap_error(metadata, each, identity) for each, identity in named if each is not None)
    if gap := next(filter(None, gaps), None):
        return gap
    if position.snapshot_id is None or head is not None:
        return None
    return HistoryGapError(
        f"'{table}' has no current snapshot any more, but the index has snapshot {position.snapshot_id}",
        subject="branch",
        value=branch,
        remedy=REEXPORT.format(GAP_POLICY),
    )


def schema_error(table: str, changes: Sequence[SchemaChange]) -> SchemaChangeError:
    return SchemaChangeError(
        f"The schema of '{table}' changed: {'; '.join(map(str, changes))}",
        subject=SCHEMA_POLICY,
        value="fail",
        remedy=REEXPORT.format(SCHEMA_POLICY),
    )


def refusal(position: Position, metadata: TableMetadata, head: int | None, branch: str) -> IcecdcError | None:
    """Return why the next sync cannot read the changes, from a table's metadata alone; raises if that cannot tell."""
    if (error := history_error(position, position.table, metadata, head, branch)) or not position.schema:
        return error
    was, now, selection = json.loads(position.schema), metadata.schema, position.selection
    if was.get("schema-id") == now["schema-id"]:
        return None
    known = {field["id"] for field in was["fields"]}
    if not any(selection.get(name) for name in ("columns", "select", "nest")):
        known |= {field["id"] for field in now["fields"]}
    used = json.dumps({"fields": [field for field in now["fields"] if field["id"] in known]})
    changes = [*schema_change(position.schema, used, metadata.has_name_mapping)]
    if not all(change.additive for change in changes):
        return schema_error(position.table, changes)
    expressions = {name: selection[name] for name in ("select", "row_filter", "nest", "embed") if selection.get(name)}
    within = [change for change in changes if change.kind != "added" or "." in change.column]
    if expressions and (within or STAR.search(json.dumps(expressions))):
        what = f"unknown: the schema of '{position.table}' changed, and only a sync can tell what that does to"
        raise StatusUnknownError(f"{what} {', '.join(expressions)}")
    return None
