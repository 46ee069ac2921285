"""What the cluster knows of every index: position, last run, begun batch, who is at work; no Spark is needed."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from opensearchpy import OpenSearch

from icecdc_core.commits.position import LeaseHolder, is_gone, parse_position
from icecdc_core.config import SyncConfig
from icecdc_core.opensearch.client import Connection, reading, typed_errors
from icecdc_core.reporting.card import BEHIND, FAILED, IN_SYNC, UNKNOWN, Card, moment, snapshots_text
from icecdc_core.reporting.exit_states import failure_report
from icecdc_core.reporting.reports import WORST_FIRST, Report, text_table
from icecdc_core.table.snapshots import MAIN_BRANCH, TableMetadata, head_snapshot_id, history_gap_error, lag

Step = Callable[["SyncConfig", dict[str, Any]], dict[str, Any]]

_MOST_TABLES = 10_000
_OF_BATCH = ("kind", "epoch", "from_snapshot_id", "to_snapshot_id", "groups_done", "failure")
_OF_RUN = ("kind", "updated_at", "seconds", "upserts", "deletes", "already_applied", "rejected", "run_id")


@dataclass(frozen=True)
class IndexStatus:
    """The status of one index.

    Attributes:
        index: The alias that readers use.
        table: Its table.
        snapshot_id: The snapshot it equals; null before the first commit, and for an empty table.
        nested_snapshots: The snapshot of each nested table that it equals.
        lag_snapshots: Snapshots it is behind; null if that is unknown.
        lag_seconds: Age in seconds of the oldest commit it lacks; null if that is unknown.
        last_run: Its newest committed batch: kind, when, counts, seconds.
        pending: The batch that was begun and not committed: kind, epoch, range, failure; null if there is none.
        running: The run that has locked the index; null if there is none.
        dead_letters: Rejected documents that wait for a replay; null if that is unknown.
        drifted: Documents that syncs did not find since the index was last exported, repaired or found equal.
        problem: Why something of this is unknown.
        state: How the status is to be judged, one of `EXIT_STATES`.
    """

    index: str
    table: str
    snapshot_id: int | None = None
    nested_snapshots: dict[str, int | None] = field(default_factory=dict)
    lag_snapshots: int | None = None
    lag_seconds: float | None = None
    last_run: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, Any] | None = None
    running: dict[str, Any] | None = None
    dead_letters: int | None = None
    drifted: int = 0
    problem: str = ""
    state: str = "ok"


_NONE = "No index has a position: none was exported to this cluster, or positions_index is another one."


@dataclass(frozen=True)
class StatusReport(Report):
    """The status of every index of a positions index."""

    indexes: list[IndexStatus]

    @property
    def state(self) -> str:
        return min((each.state for each in self.indexes), key=WORST_FIRST.index, default="ok")

    @property
    def word(self) -> str:
        if self.state != "ok":
            return FAILED
        if any(each.lag_snapshots or each.pending or each.dead_letters for each in self.indexes):
            return BEHIND
        is_known = self.indexes and all(each.lag_snapshots is not None for each in self.indexes)
        return IN_SYNC if is_known else UNKNOWN

    @property
    def line(self) -> str:
        """The status of the first index."""
        return _line(self.indexes[0]) if self.indexes else "not exported yet"

    def card(self) -> Card:
        rows = [f"{each.index}, from {each.table}: {_line(each)}" for each in self.indexes]
        return super().card()._replace(title=f"{len(rows)} indexes", what="\n".join(rows) or _NONE)

    def text(self) -> str:
        rows = [(each.index, each.table, _line(each)) for each in self.indexes]
        return text_table([("index", "table", "status"), *rows]) if rows else _NONE


def cluster_status(config: SyncConfig, index: str = "", steps: tuple[Step, ...] = ()) -> StatusReport:
    """Return the status of one index, or of every index; steps add what is known of it elsewhere."""
    with closing(Connection.of(config).client()) as client, typed_errors(config, "reading the positions"):
        if not client.indices.exists(index=config.positions_index):
            return StatusReport([])
        client.indices.refresh(index=config.positions_index)
        positions, commits = (_newest(client, config, kind, index) for kind in ("position", "commit"))
    found = ((source, commits.get(name, {})) for name, source in sorted(positions.items()))
    return StatusReport([_status(config, source, last, steps) for source, last in found])


def _newest(client: OpenSearch, config: SyncConfig, kind: str, index: str) -> dict[str, dict[str, Any]]:
    """Return the document of a kind with the highest epoch, of one index or of every index."""
    wanted = [{"term": {"type": kind}}, *([{"term": {"index": index}}] if index else [])]
    newest = {"collapse": {"field": "index"}, "sort": [{"epoch": "desc"}], "size": _MOST_TABLES}
    found = client.search(index=config.positions_index, body={"query": {"bool": {"filter": wanted}}, **newest})
    with reading(found):
        return {str(hit["_source"].get("index")): hit["_source"] for hit in found["hits"]["hits"]}


def _status(config: SyncConfig, source: dict[str, Any], last: dict[str, Any], steps: tuple[Step, ...]) -> IndexStatus:
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for step in (_position, *steps):
        try:
            found |= step(config, source)
        except Exception as error:  # whatever is wrong with one table, the others have a status
            failed = failure_report(error, {})
            problems[str(failed["message"])] = str(failed["state"])
            if step is _position:
                break
    states = [*problems.values(), *(["differs"] if found.get("drifted") else [])]
    return IndexStatus(
        index=str(source.get("index")),
        table=str(source.get("table")),
        last_run={name: last.get(name) for name in _OF_RUN if last},
        problem=" ".join(problems),
        state=min(states, key=WORST_FIRST.index, default="ok"),
        **found,
    )


def lag_of(metadata_of: Callable[[str], TableMetadata], config: SyncConfig, source: dict[str, Any]) -> dict[str, Any]:
    """How far a position is behind its table's branch and its nested tables."""
    branch = (source.get("selection") or {}).get("branch", config.branch)
    lags = []
    positions = [(source["table"], source, branch)]
    positions += [(name, at, MAIN_BRANCH) for name, at in (source.get("nested") or {}).items()]
    for name, at, of_branch in positions:
        metadata, snapshot_id, identity = metadata_of(name), at.get("snapshot_id"), at.get("identity", "")
        if snapshot_id is not None and (gap := history_gap_error(metadata, snapshot_id, identity)) is not None:
            if config.on_history_gap == "fail":
                raise gap  # also of a table that was created again
            return {}
        lags.append(lag(metadata, snapshot_id, head_snapshot_id(metadata, of_branch)))
    return {"lag_snapshots": sum(each[0] for each in lags), "lag_seconds": max(each[1] for each in lags)}


def _position(config: SyncConfig, source: dict[str, Any]) -> dict[str, Any]:
    position, holder = parse_position(source)
    gone = is_gone(holder, LeaseHolder.this_process("")) if holder else True
    running: dict[str, Any] | None = None
    if holder and not gone:
        # Whether a run on another machine is alive shows only when its lease expires.
        known = {"host": holder.host.split("/")[0], "alive": None if gone is None else True}
        running = {"run_id": holder.run_id, "since": holder.since, **known}
    return {
        "snapshot_id": position.snapshot_id,
        "nested_snapshots": position.nested_snapshots,
        "pending": {name: getattr(position.batch, name) for name in _OF_BATCH} if position.batch else None,
        "running": running,
        "drifted": position.drifted,
    }


def _line(status: IndexStatus) -> str:
    last, pending = status.last_run, status.pending or {}
    snapshots = snapshots_text(status.snapshot_id, status.nested_snapshots)
    lag = "" if status.problem else "lag unknown"
    if status.lag_snapshots is not None:
        lag = f"{status.lag_snapshots} snapshots, {status.lag_seconds or 0.0:,.0f} s behind"
    failure = f" ({pending['failure']})" if pending.get("failure") else ""
    parts = (
        snapshots if status.snapshot_id is not None else "no snapshot yet" if last else "not exported yet",
        lag,
        f"last {last.get('kind')} {moment(str(last.get('updated_at') or ''))}".rstrip() if last else "",
        f"a begun {pending['kind']} is not finished{failure}" if pending else "",
        f"run {status.running['run_id']} is running" if status.running else "",
        f"{status.dead_letters} dead letters" if status.dead_letters else "",
        f"{status.drifted} documents had been missing: run icecdc validate" if status.drifted else "",
        status.problem,
    )
    return "; ".join(filter(None, parts))
