"""What must hold, checked after every request that may have changed something: the invariants of docs/proof.md."""

from __future__ import annotations

from typing import Any

from tests.simulation.simulated_opensearch import Index, SimulatedOpenSearch
from tests.simulation.simulated_table import Rows


class Violation(AssertionError):  # noqa: N818 (the name of the thing)
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: object) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Invariants:
    """The invariants of one index."""

    def __init__(
        self,
        cluster: SimulatedOpenSearch,
        rows: dict[int | None, Rows],
        heads: list[int],
        index: str,
        positions_index: str,
    ) -> None:
        self._heads = heads
        self._at = 0
        self._cluster = cluster
        self._rows = rows
        self._index = index
        self._positions_index = positions_index
        self.foreign = False
        self._epoch = 0
        self._begun: dict[int, tuple[Any, ...]] = {}
        self._exports: dict[str, tuple[int, int | None]] = {}
        self._versions: dict[tuple[str, str], int] = {}

    @property
    def position(self) -> dict[str, Any] | None:
        """The stored position."""
        index = self._cluster.indexes.get(self._positions_index)
        document = index.documents.get(f"position:{self._index}") if index else None
        return dict(document.source) if document and document.source else None

    def check(self) -> None:
        """Check all of them."""
        position = self.position
        seen = self._cluster.behind(self._index)
        self._check_epochs(position)
        self._check_versions(position)
        for name, index in seen.items():
            self._check_whole(name, index)
        if position is not None and position["physical_index"] and position["batch"] is None:
            self.check_committed(position, seen)
            self._check_logged(position)

    def _check_logged(self, position: dict[str, Any]) -> None:
        """Committed, and no batch begun: the commit log has the batch that led to the position."""
        epoch = position["epoch"]
        entry = self._cluster.indexes[self._positions_index].documents.get(f"commit:{self._index}:{epoch}")
        found = entry.source if entry else None
        place = ("snapshot_id", "physical_index")
        # A sync may drop a begun repair.
        if not found and self._begun[epoch][0] == "repair":
            return
        if not found or any(found[name] != position[name] for name in place):
            raise Violation("CommitsAreLogged", f"epoch {epoch} of the position has the entry {found}")

    def check_committed(self, position: dict[str, Any], seen: dict[str, Index]) -> None:
        """Committed, and no batch begun: readers see the rows of the position's snapshot."""
        physical, wanted = position["physical_index"], self._rows[position["snapshot_id"]]
        index = self._cluster.indexes.get(physical)
        if index is None:
            raise Violation("IndexIsSnapshot", f"the index {physical} is gone")
        found = {name: each.source["name"] for name, each in index.documents.items() if each.source is not None}
        if found != wanted and not self.foreign:
            raise Violation("IndexIsSnapshot", f"{physical} has {found}, {position['snapshot_id']} has {wanted}")
        searched = {name: each.source["name"] for name, each in index.searchable.items() if each.source}
        if searched != wanted and not self.foreign:
            raise Violation("IndexIsSnapshot", f"searches in {physical} do not find {wanted} yet")
        if list(seen) != [physical]:
            raise Violation("ReadersSeeTheCommittedIndex", f"readers see {sorted(seen)}, the position has {physical}")

    def _check_epochs(self, position: dict[str, Any] | None) -> None:
        if position is None:
            return
        epoch, batch = position["epoch"], position["batch"]
        if epoch < self._epoch:
            raise Violation("EpochsGrow", f"the epoch fell from {self._epoch} to {epoch}")
        highest, self._epoch = self._epoch, epoch
        if batch is None:
            return
        identity = (
            *(batch["kind"], batch["from_snapshot_id"], batch["to_snapshot_id"]),
            *(tuple(batch["cuts"]), batch["physical_index"], batch["groups_digest"]),
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
            self._exports[batch["physical_index"]] = (batch["epoch"], batch["to_snapshot_id"])

    def _check_direction(self, batch: dict[str, Any]) -> None:
        """A new batch ends with a snapshot that was current when, or after, that of the batch before it was."""
        if batch["kind"] == "repair":
            return
        later = [at for at in range(self._at, len(self._heads)) if self._heads[at] == batch["to_snapshot_id"]]
        if not later:
            raise Violation("IndexGoesForward", f"{self._heads} and then back to {batch['to_snapshot_id']}")
        self._at = later[0]

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
        epoch, snapshot = self._exports[name]
        for identity in self._rows[snapshot]:
            document = index.documents.get(identity)
            found = document is not None and document.version > 2 * epoch
            as_exported = document is not None and document.version == 2 * epoch + 1
            # What came later is found after the next refresh.
            if not found or (as_exported and identity not in index.searchable):
                raise Violation("ReadersSeeWholeExports", f"readers do not find {identity} of {snapshot} in {name}")
