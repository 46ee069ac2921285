"""The status of every index: its position in the cluster, and its tables in their catalogs; no Spark is needed."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool
from typing import Any

from opensearchpy import OpenSearch

from icecdc_core.commits.audit import audit_facts, known_parts
from icecdc_core.commits.history import refusal
from icecdc_core.commits.position import CONFIRMED_EVERY, LeaseHolder, Position, is_gone, parse_position
from icecdc_core.config import SyncConfig
from icecdc_core.errors import SchemaChangeError, StatusUnknownError
from icecdc_core.opensearch.client import Connection, reading, typed_errors
from icecdc_core.reporting.card import (
    BEHIND,
    FAILED,
    IN_SYNC,
    UNKNOWN,
    Bar,
    Card,
    in_few_words,
    lag_text,
    moment,
    snapshots_text,
)
from icecdc_core.reporting.exit_states import failure_report
from icecdc_core.reporting.metrics import RunMetrics
from icecdc_core.reporting.reports import WORST_FIRST, Report, text_table
from icecdc_core.reporting.telemetry import publish_run_metrics
from icecdc_core.table.metadata_reader import read_metadata
from icecdc_core.table.snapshots import MAIN_BRANCH, TableMetadata, head_snapshot_id, lag

Step = Callable[["SyncConfig", dict[str, Any]], dict[str, Any]]

_SECONDS = 10.0  # for all catalogs together
THREADS = 64
"""Tables, or indexes, that are read at once at most; they wait for servers."""

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
        committed_at: When the newest of its snapshots was committed.
        current_at: When its snapshots were last known to be the newest, by the clock of the sync.
        freshness_seconds: Age of the oldest commit it lacks; if that is unknown, of `current_at`, less the minute that
            polls may leave it.
        freshness_slo: The promised freshness in seconds; null if none is.
        audit: Its parts: how many were `compared` since its export, when the oldest of them, `differences` that the
            last comparison of each found, and documents `repaired`; empty without an audit.
        problem: Why something of this is unknown, or why the next sync fails or exports the table again.
        state: How the status is to be judged, one of `EXIT_STATES`; ``ok`` only if it is known to be in sync.
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
    committed_at: str | None = None
    current_at: str | None = None
    freshness_seconds: float | None = None
    freshness_slo: float | None = None
    audit: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    state: str = "unknown"


_WORDS = {"ok": IN_SYNC, "behind": BEHIND, "unknown": UNKNOWN}
_NEXT_EXPORTS = "The next sync exports the table again"
_NONE = "No index has a position: none was exported to this cluster, or positions_index is another one."


@dataclass(frozen=True)
class StatusReport(Report):
    """The status of every index of a positions index."""

    indexes: list[IndexStatus]

    @property
    def state(self) -> str:
        return min((each.state for each in self.indexes), key=WORST_FIRST.index, default="unknown")

    @property
    def word(self) -> str:
        return _WORDS.get(self.state, FAILED)

    @property
    def problems(self) -> list[str]:
        return [each.problem for each in self.indexes if each.problem]

    @property
    def line(self) -> str:
        """The status of the first index."""
        return _line(self.indexes[0]) if self.indexes else "not exported yet"

    def bars(self) -> list[Bar]:
        found: list[Bar] = []
        for each in self.indexes:
            needs_export = each.state == "reexport" or each.problem.startswith(_NEXT_EXPORTS)
            remark = "needs an export" if needs_export else each.state
            remark += f", {each.dead_letters:,} dead letters" if each.dead_letters else ""
            since = moment(each.audit.get("oldest_compared_at", ""))
            remark += f", compared since {since}" if since else ""
            found.append((each.index, round(each.freshness_seconds or 0), remark, _WORDS.get(each.state, FAILED)))
        return found

    def card(self) -> Card:
        rows = [f"{each.index}, from {each.table}: {_line(each)}\n{each.problem}".rstrip() for each in self.indexes]
        title = f"{len(rows):,} index{'es' * (len(rows) != 1)}"
        return super().card()._replace(title=title, what="\n".join(rows) or _NONE)

    def text(self) -> str:
        rows = [(each.index, each.table, _line(each)) for each in self.indexes]
        problems = [f"{each.index}: {each.problem}" for each in self.indexes if each.problem]
        return "\n".join([text_table([("index", "table", "status"), *rows]), *problems]) if rows else _NONE


def cluster_status(config: SyncConfig, index: str = "", steps: tuple[Step, ...] = ()) -> StatusReport:
    """Return the status of one index, or of every index; steps read the tables, by default with PyIceberg."""
    with closing(Connection.of(config).client()) as client, typed_errors(config, "reading the positions"):
        if not client.indices.exists(index=config.positions_index):
            return StatusReport([])
        client.indices.refresh(index=config.positions_index)
        positions, commits = (_newest(client, config, kind, index) for kind in ("position", "commit"))
        audits = _newest(client, config, "audit", index)
    for name, audit in audits.items():
        commits.setdefault(name, {})["audit"] = audit
    found = [(source, commits.get(name, {})) for name, source in sorted(positions.items())]
    if steps or not found:
        return StatusReport([_status(config, source, last, steps) for source, last in found])
    until, read = time.monotonic() + _SECONDS, partial(read_metadata, config)
    with ThreadPool(min(THREADS, len(found))) as pool:
        reads = {str(source.get("index")): pool.apply_async(table_facts, (read, config, source)) for source, _ in found}

        def wait(_: SyncConfig, source: dict[str, Any]) -> dict[str, Any]:
            try:
                return reads[str(source.get("index"))].get(max(0.0, until - time.monotonic()))
            except TimeoutError:
                raise StatusUnknownError(f"unknown: the catalog did not answer within {_SECONDS:.0f} s") from None

        return StatusReport([_status(config, source, last, (wait,)) for source, last in found])


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
    for step in (position_facts, *steps):
        try:
            found |= step(config, source)
        except Exception as error:  # whatever is wrong with one table, the others have a status
            failed = failure_report(error, {})
            problems[str(failed["message"])] = str(failed["state"])
            if step is position_facts:
                break
    states, lacks = [*problems.values()], found.get("lag_snapshots")
    freshness, is_check = found.get("lag_seconds"), getattr(config, "check", False)
    if freshness is None and found.get("current_at"):
        freshness = max(0.0, time.time() - datetime.fromisoformat(found["current_at"]).timestamp() - CONFIRMED_EVERY)
    if config.freshness_slo and freshness is not None:
        if freshness > config.freshness_slo:
            states.append("lagging")
        elif is_check:  # fresh enough, whatever it lacks
            states, lacks = [each for each in states if each != "unknown"], 0
    audit = audit_facts(known_parts(last.pop("audit", {}), str(source.get("physical_index"))))
    if found.get("drifted") or audit["differences"]:
        states.append("differs")
    is_begun = found.get("pending") and not (is_check and config.freshness_slo)
    if lacks or is_begun or any(found.get(name) for name in ("dead_letters", "problem")):
        states.append("behind")
    elif lacks is None and not states:
        states.append("unknown")
    status = IndexStatus(
        index=str(source.get("index")),
        table=str(source.get("table")),
        last_run={name: last.get(name) for name in _OF_RUN if last},
        problem=" ".join([*problems, *filter(None, [found.pop("problem", "")])]),
        state=min(states, key=WORST_FIRST.index, default="ok"),
        freshness_seconds=freshness,
        freshness_slo=config.freshness_slo or None,
        audit=audit if audit["parts"] else {},
        **found,
    )
    if is_check:
        names = ("index", "table", "state", "freshness_seconds", "freshness_slo")
        publish_run_metrics(RunMetrics({"job": "status", **{name: getattr(status, name) for name in names}}), config)
    return status


def table_facts(
    metadata_of: Callable[[str], TableMetadata], config: SyncConfig, source: dict[str, Any]
) -> dict[str, Any]:
    """How far a position is behind its tables; raises why the next sync cannot read them."""
    position, _ = parse_position(source)
    lags, moved = [], []
    if not position.exists:
        return {"problem": "not exported yet"}
    for at, branch in positions_of_tables(position, config):
        metadata = metadata_of(at.table)
        head = head_snapshot_id(metadata, branch)
        if (error := refusal(at, metadata, head, branch)) is not None:
            policy = config.on_schema_change if isinstance(error, SchemaChangeError) else config.on_history_gap
            if policy == "fail":
                raise error  # also of a table that was created again
            return {"problem": f"{_NEXT_EXPORTS}: {error.message}."}
        lags.append(lag(metadata, at.snapshot_id, head))
        moved += [f"{at.table} is at snapshot {head}, an earlier one."] if at.snapshot_id != head else []
    lacks = sum(each[0] for each in lags)
    found = {"lag_snapshots": lacks, "lag_seconds": max(each[1] for each in lags)}
    return found if lacks else {**found, "problem": " ".join(moved)}


def positions_of_tables(position: Position, config: SyncConfig) -> list[tuple[Position, str]]:
    """A position for each of its tables, and the branch that it follows."""
    nested = [(position.of_nested(name), MAIN_BRANCH) for name in position.nested]
    return [(position, position.selection.get("branch", config.branch)), *nested]


def position_facts(config: SyncConfig, source: dict[str, Any]) -> dict[str, Any]:
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
        "committed_at": position.committed_at,
        "current_at": position.current_at,
    }


def _line(status: IndexStatus) -> str:
    last, pending, lag = status.last_run, status.pending or {}, in_few_words(status.problem)
    if status.lag_snapshots is not None and not lag:
        lag = lag_text(status.lag_snapshots, status.lag_seconds)
    audit = "{compared} of {parts} parts compared since {since}, {differences:,} differences, {repaired:,} repaired"
    since = moment(status.audit.get("oldest_compared_at", ""))
    failure = f" ({pending['failure']})" if pending.get("failure") else ""
    parts = (
        lag or (UNKNOWN if status.state != "ok" else ""),
        f"promised within {status.freshness_slo:,.0f} s" if status.freshness_slo else "",
        snapshots_text(status.snapshot_id, status.nested_snapshots) if status.snapshot_id is not None else "",
        f"last {last.get('kind')} {moment(str(last.get('updated_at') or ''))}".rstrip() if last else "",
        f"a begun {pending['kind']} is not finished{failure}" if pending else "",
        f"run {status.running['run_id']} is running" if status.running else "",
        f"{status.dead_letters:,} dead letters" if status.dead_letters else "",
        f"{status.drifted:,} documents had been missing: run icecdc validate" if status.drifted else "",
        audit.format(**status.audit, since=since) if status.audit else "",
    )
    return "; ".join(filter(None, parts))
