"""A table's history of snapshots, without Iceberg: snapshots from old to new. Offsets are those of one partition."""

from icecdc_core.ingest.commit_log import BATCH, JOB, OFFSETS, TableEntry


class Snapshot:
    """A snapshot with the getters of Iceberg's; its number is its id, its sequence number and its time."""

    def __init__(self, number, parent, offset=None, job="j", version=2):
        self.number = number
        recorded = {JOB: job, BATCH: str(number), OFFSETS: f'{{"t":{{"0":{offset}}}}}'}
        self.properties = {} if offset is None else recorded
        self.snapshotId, self.parentId, self.summary = lambda: number, lambda: parent, lambda: self.properties
        self.sequenceNumber = lambda: number if version > 1 else 0
        self.timestampMillis = lambda: 1000 * number


class Table:
    """A table whose current snapshot is the last one given; the others may be its ancestors or not."""

    def __init__(self, *snapshots, uuid="u", properties=()):
        self.properties = lambda: dict(properties)
        self.snapshots = {each.number: each for each in snapshots}
        self.current = snapshots[-1] if snapshots else None
        self.currentSnapshot, self.snapshot, self.uuid = lambda: self.current, self.snapshots.get, lambda: uuid


def at(offset):
    return {"t": {0: offset}}


def logged(offset, snapshot=3, uuid="u", version=2):
    number = snapshot if version > 1 and snapshot is not None else 0 if snapshot is not None else None
    return TableEntry("n", uuid, snapshot, number, offsets=at(offset), snapshot_ms=3000)
