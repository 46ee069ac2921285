"""Positions as a run leaves them that ends at an unlucky moment."""

from icecdc_core.commits.lock import active_runs
from icecdc_core.commits.store import PositionStore


def forget_commit(opensearch, config, report):
    """Put the position back to where it was before the commit, as if the process had died before it."""
    identity = f"position:{config.index}"
    position = opensearch.get(index=config.positions_index, id=identity)["_source"]
    log = PositionStore(opensearch, config).log()[0]
    names = ("kind", "epoch", "from_snapshot_id", "to_snapshot_id", "physical_index", "table_uuid", "selection")
    names += ("on_duplicate_identifier",)
    position["batch"] = {**{name: log[name] for name in names}, "schema": position["schema"]}
    position["snapshot_id"] = report.from_snapshot_id
    opensearch.index(index=config.positions_index, id=identity, body=position)


def end_lease(opensearch, config):
    """Let the run of this process that has the lock, if there is one, look dead to others."""
    found = opensearch.get(index=config.positions_index, id=f"position:{config.index}")["_source"]
    if found["owner"]:
        active_runs.discard(found["owner"]["run_id"])


def move_elsewhere(opensearch, config):
    identity = f"position:{config.index}"
    position = opensearch.get(index=config.positions_index, id=identity)["_source"]
    position["owner"]["host"] = "another machine"
    opensearch.index(index=config.positions_index, id=identity, body=position)
