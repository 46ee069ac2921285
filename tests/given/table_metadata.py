"""Table metadata made by hand."""

from icecdc_core.table.snapshots import Snapshot, TableMetadata

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": True, "type": "long"}]}


def metadata_of(snapshots, branches, *, schema=SCHEMA, log=(), first_number=1, properties=()) -> TableMetadata:
    """A table with these snapshots (id, parent, operation, time in ms, rest of the summary), oldest first."""
    made = [
        Snapshot(snapshot_id, committed, parent, number, operation, {"operation": operation, **summary})
        for number, (snapshot_id, parent, operation, committed, summary) in enumerate(snapshots, first_number)
    ]
    facts = bool(log), "schema.name-mapping.default" in properties
    return TableMetadata(UUID, "file:/t", schema, tuple(made), dict(branches), branches.get("main"), *facts)


def metadata(*snapshots, current, branches=None) -> TableMetadata:
    """Table metadata with these (id, parent, operation) snapshots; snapshot n is committed at n seconds."""
    made = [(*each, each[0] * 1000, {"total-records": str(each[0] * 1000)}) for each in snapshots]
    return metadata_of(made, {"main": current, **(branches or {})})
