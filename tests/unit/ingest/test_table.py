"""How often a batch is staged and published into one table while others commit too; without Spark and Iceberg."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from icecdc_core.errors import ConcurrentIngestError
from icecdc_core.ingest import IngestConfig, table as writer
from icecdc_core.ingest.commit_log import OFFSETS, LogEntry, TableEntry
from icecdc_core.ingest.dead_letters import DeadLetters
from icecdc_core.ingest.offsets import from_json
from icecdc_core.ingest.publish import MovedError, StagedSnapshot
from icecdc_core.ingest.table import Writer
from icecdc_core.ingest.writes import StagedWrite, TableRecords
from tests.unit.ingest.snapshot_history import Snapshot, Table, at

BATCH = LogEntry("j", 4, "run", "batch", at(9), at(5))
ATTEMPTS = 3
REJECTED = SimpleNamespace(select=lambda *columns: None)


@dataclass
class Lake:
    """A table into which others commit at given moments."""

    table: Table
    moments: dict[str, list]
    steps: list[str]

    def commit(self, properties=None, offset=None):
        number = max(self.table.snapshots, default=0) + 1
        parent = self.table.current and self.table.current.number
        snapshot = Snapshot(number, parent, offset)
        if properties:
            snapshot.properties = properties
        self.table.snapshots[number] = self.table.current = snapshot

    def others_act(self, moment):
        """Whether others did something at this moment."""
        acts = self.moments.get(moment, [])
        act = acts.pop(0) if acts else None
        if act is not None:
            act(self)
        return act is not None

    def stage(self, properties):
        self.others_act("read")
        self.steps.append("stage")
        if self.others_act("stage"):
            raise MovedError("another writer's commit", subject="table")
        staged = self.staged(properties)
        self.others_act("staged")
        return StagedWrite(staged, None, rejected=REJECTED)

    def staged(self, properties):
        counts, recorded = {"rows": 2, "files": 1, "bytes": 50}, from_json(properties[OFFSETS])
        entry = TableEntry("t", "u", 100 + len(self.steps), 7, **counts, offsets=recorded, snapshot_ms=7000)
        return StagedSnapshot(entry, self.table.current and self.table.current.number, properties, self.table)

    def restage(self, spark, name, staged):
        self.steps.append("restage")
        return None if self.others_act("restage") else self.staged(staged.properties)

    def publish(self, spark, name, staged):
        self.steps.append("publish")
        self.others_act("publish")
        if staged.parent_id != (self.table.current and self.table.current.number):
            raise MovedError("another writer's commit", subject="table")
        self.commit(staged.properties)


@pytest.fixture
def write(monkeypatch):
    """Write the batch into a lake; returns the table's entry, the dead letters and the steps."""

    def run(mode="append", table=None, **moments):
        lake = Lake(table or Table(Snapshot(1, None)), moments, [])

        monkeypatch.setattr(writer, "open_or_create_table", lambda *given: (lake.table, False))
        monkeypatch.setattr(writer.writes, "stage_records", lambda *given, **_: lake.stage(given[-1]))
        monkeypatch.setattr(writer, "publish", lake.publish)
        monkeypatch.setattr(writer, "restage", lake.restage)
        monkeypatch.setattr(DeadLetters, "write", lambda *given: 1)
        monkeypatch.setattr(DeadLetters, "judge_again", lambda *given: None)
        config = IngestConfig(job="j", bootstrap_servers="b:1", topics="t", table="lake.a.t", mode=mode)
        made = Writer(config, DeadLetters(config, "run"), {}, at(0), ATTEMPTS)
        entry, dead_letters = made.write(None, "t", TableRecords(None), BATCH)
        return entry, dead_letters, lake.steps

    return run


def other(lake):
    lake.commit()


def copy(lake):
    """Another copy of the job commits the same batch."""
    lake.commit(offset=9)


WRITTEN = TableEntry("t", "u", 101, 7, rows=2, files=1, bytes=50, offsets=at(9), snapshot_ms=7000)


class DescribeWrites:
    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def it_stages_and_publishes_once_if_the_table_lacks_the_batch(self, write, mode):
        assert write(mode) == (WRITTEN, 1, ["stage", "publish"])
        there = TableEntry("t", "u", 3, 3, offsets=at(9), snapshot_ms=3000)
        assert write(mode, Table(Snapshot(3, 2, 9))) == (there, 0, [])

    @pytest.mark.parametrize(
        ("mode", "moments", "steps", "dead_letters"),
        [
            # An append is staged again, and written again only if what was staged has expired.
            (
                "append",
                {"staged": [other], "publish": [None, other]},
                "stage publish restage publish restage publish",
                1,
            ),
            ("append", {"staged": [other], "restage": [other]}, "stage publish restage stage publish", 2),
            # A merge is written again. Its dead letters count each time; their table keeps each only once.
            ("upsert", {"staged": [other], "publish": [None, other]}, "stage publish stage publish stage publish", 3),
            ("append", {"stage": [other, other]}, "stage stage stage publish", 1),
            ("upsert", {"stage": [other, other]}, "stage stage stage publish", 1),
        ],
    )
    def it_writes_again_over_the_commits_of_others(self, write, mode, moments, steps, dead_letters):
        entry = replace(WRITTEN, snapshot_id=100 + len(steps.split()) - 1)
        assert write(mode, **moments) == (entry, dead_letters, steps.split())

    @pytest.mark.parametrize("moment", ["read", "staged", "publish"])
    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def it_publishes_nothing_if_a_copy_of_the_job_was_faster(self, write, mode, moment):
        expected = TableEntry("t", "u", 2, 2, offsets=at(9), snapshot_ms=2000)
        entry, _, steps = write(mode, **{moment: [copy]})
        assert (entry, steps) == (expected, ["stage", "publish"][: 1 + (moment != "read")])

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    @pytest.mark.parametrize("moment", ["stage", "staged", "publish"])
    def it_fails_if_others_commit_before_every_attempt(self, write, mode, moment):
        with pytest.raises(ConcurrentIngestError, match=f"first, {ATTEMPTS} times"):
            write(mode, **{moment: [other] * ATTEMPTS, **({"publish": [other] * ATTEMPTS} if mode == "append" else {})})
