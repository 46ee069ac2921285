"""What must hold, checked after every request that may have changed something: the invariants of docs/proof.md."""

from typing import Any

from tests.simulation.simulated_opensearch import Document, Index, SimulatedOpenSearch
from tests.simulation.simulated_table import CHILD, History, Rows, documents

Vector = tuple[int | None, int | None]
"""A snapshot of the root, and one of the child table."""


def vector_of(holder: dict[str, Any], name: str) -> Vector:
    nested = holder.get("nested", {}).get(CHILD)
    return holder[name], nested and nested["snapshot_id"]


class Violation(AssertionError):  # noqa: N818 (the name of the thing)
    def __init__(self, invariant: str, what: object) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Invariants:
    def __init__(self, cluster: SimulatedOpenSearch, world: Any, index: str, positions_index: str) -> None:
        self._world = world
        self._tables: list[History] = [world.history, world.child] if world.child else [world.history]
        self._at = [0, 0]
        self._cluster = cluster
        self._index = index
        self._positions_index = positions_index
        self.foreign = False
        self._epoch = self._last = 0
        self._owner: dict[str, Any] | None = None
        self._begun: dict[int, tuple[Any, ...]] = {}
        self._exports: dict[str, tuple[int, Vector]] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._reads: dict[str, list[int]] = {}

    @property
    def position(self) -> dict[str, Any] | None:
        index = self._cluster.indexes.get(self._positions_index)
        document = index.documents.get(f"position:{self._index}") if index else None
        return dict(document.source) if document and document.source else None

    def _documents(self, vector: Vector) -> Rows:
        return documents(*(table.rows[at] for table, at in zip(self._tables, vector, strict=False)))

    def note_read(self, read_at: str) -> None:
        """A run is about to read the tables, in this order."""
        self._reads.setdefault(read_at, [len(table.heads) - 1 for table in self._tables])

    def check(self) -> None:
        position = self.position
        seen = self._cluster.behind(self._index)
        self._check_epochs(position)
        self._check_lock(position)
        self._check_versions(position)
        for name, index in seen.items():
            self._check_whole(name, index)
        if position is not None and position["physical_index"] and position["batch"] is None:
            self.check_committed(position, seen)
            self._check_logged(position)
        if position is not None and position["current_at"]:
            self._check_current(position)

    def _check_logged(self, position: dict[str, Any]) -> None:
        """Committed, and no batch begun: the commit log has the batch that led to the position."""
        epoch = self._last  # a rollback may return to a begun batch of an earlier epoch
        entry = self._cluster.indexes[self._positions_index].documents.get(f"commit:{self._index}:{epoch}")
        found = entry.source if entry else None
        place = ("snapshot_id", "physical_index")
        kind, *_, physical, _ = self._begun[epoch]
        # A sync may drop a begun repair, and an export drops itself if its index cannot be created.
        if not found and (kind == "repair" or physical != position["physical_index"]):
            return
        if not found or any(found[name] != position[name] for name in place):
            raise Violation("CommitsAreLogged", f"epoch {epoch} of the position has the entry {found}")

    def check_committed(self, position: dict[str, Any], seen: dict[str, Index]) -> None:
        """Committed, and no batch begun: readers see the rows of the position's snapshot."""
        physical, vector = position["physical_index"], vector_of(position, "snapshot_id")
        wanted = self._documents(vector)
        index = self._cluster.indexes.get(physical)
        if index is None:
            raise Violation("IndexIsSnapshot", f"the index {physical} is gone")
        if self._world.places:
            wanted = {f"{index.key(identity, name[0])} in {name[0]}": name for identity, name in wanted.items()}
        found = self._found(index.documents)
        if found != wanted and not self.foreign:
            raise Violation("IndexIsSnapshot", f"{physical} has {found}, {vector} has {wanted}")
        searched = self._found(index.searchable)
        if searched != wanted and not self.foreign:
            raise Violation("IndexIsSnapshot", f"searches in {physical} do not find {wanted} yet")
        if list(seen) != [physical]:
            raise Violation("ReadersSeeTheCommittedIndex", f"readers see {sorted(seen)}, the position has {physical}")

    def _found(self, documents: dict[str, Document]) -> Rows:
        return {
            f"{key} in {each.routing}" if each.routing else key: each.source["name"]
            for key, each in documents.items()
            if each.source is not None
        }

    def _check_current(self, position: dict[str, Any]) -> None:
        """The index has the snapshots that were current at `current_at`, or later."""
        read = self._reads[position["current_at"]]
        for table, known, at in zip(self._tables, read, vector_of(position, "snapshot_id"), strict=False):
            if at not in table.heads[known:]:
                raise Violation("CurrentAtIsTrue", f"{position['current_at']}: {table.heads[known:]} without {at}")

    def _check_epochs(self, position: dict[str, Any] | None) -> None:
        if position is None:
            return
        epoch, batch = position["epoch"], position["batch"]
        if epoch < self._epoch:
            raise Violation("EpochsGrow", f"the epoch fell from {self._epoch} to {epoch}")
        highest, self._epoch = self._epoch, epoch
        if batch is None:
            return
        self._last = batch["epoch"]
        identity = (
            *(batch["kind"], batch["from_snapshot_id"], vector_of(batch, "to_snapshot_id")),
            *(tuple(batch["cuts"]), str(batch.get("nested_cuts")), batch["physical_index"], batch["groups_digest"]),
        )
        if batch["epoch"] not in self._begun:
            if not highest < batch["epoch"] == epoch:
                raise Violation("EpochsGrow", f"a batch with epoch {batch['epoch']} begins after epoch {highest}")
            self._begun[epoch] = identity
            self._check_direction(batch)
        if self._begun[batch["epoch"]] != identity:
            what = f"epoch {batch['epoch']} is of {self._begun[batch['epoch']]} and of {identity}"
            raise Violation("EpochsAreUnique", what)
        if batch["kind"] == "export":
            self._exports[batch["physical_index"]] = (batch["epoch"], vector_of(batch, "to_snapshot_id"))

    def _check_lock(self, position: dict[str, Any] | None) -> None:
        """Nobody else releases the lock of a run that lives and renews its lease."""
        owner, self._owner = self._owner, (position or {}).get("owner")
        sender = self._world.network.sender
        if owner and not self._owner and sender != owner["run_id"] and self._world.keeps_lease(owner):
            raise Violation("LocksAreKept", f"{sender} released the lock of {owner['run_id']}")

    def _check_direction(self, batch: dict[str, Any]) -> None:
        """A new batch ends with snapshots that were current when, or after, those of the batch before it were."""
        if batch["kind"] in ("repair", "rollback"):
            return
        for number, (table, wanted) in enumerate(zip(self._tables, vector_of(batch, "to_snapshot_id"), strict=False)):
            later = [at for at in range(self._at[number], len(table.heads)) if table.heads[at] == wanted]
            if not later:
                raise Violation("IndexGoesForward", f"{table.name}: {table.heads} and then back to {wanted}")
            self._at[number] = later[0]

    def _check_versions(self, position: dict[str, Any] | None) -> None:
        for name, index in self._cluster.indexes.items():
            if name == self._positions_index:
                continue
            for identity, document in index.documents.items():
                key = index.uuid, identity
                if document.version < self._versions.get(key, 0):
                    raise Violation("VersionsNeverFall", f"{name}/{identity} fell to {document.version}")
                self._versions[key] = document.version
                if not self.foreign and document.version // 2 > (position or {"epoch": 0})["epoch"]:
                    raise Violation("EpochsAreUnique", f"{name}/{identity} has an epoch that nobody recorded")

    def _check_whole(self, name: str, index: Index) -> None:
        """Readers find each document of the export that made the index, as exported or newer."""
        if name not in self._exports:
            raise Violation("ReadersSeeWholeExports", f"no export made {name}")
        epoch, vector = self._exports[name]
        for identity, text in self._documents(vector).items():
            key = index.key(identity, text[0] if self._world.places else None)
            document = index.documents.get(key)
            found = document is not None and document.version > 2 * epoch
            as_exported = document is not None and document.version == 2 * epoch + 1
            # What came later is found after the next refresh.
            if not found or (as_exported and key not in index.searchable):
                raise Violation("ReadersSeeWholeExports", f"readers do not find {identity} of {vector} in {name}")
