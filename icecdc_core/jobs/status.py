"""The status of every index: position, lag, last run, begun batch, dead letters; it only reads."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from icecdc_core.commits.lock import is_gone
from icecdc_core.commits.position import LeaseHolder, parse_position
from icecdc_core.commits.store import committed_batches
from icecdc_core.opensearch.client import Connection, typed_errors
from icecdc_core.reporting.card import BEHIND, FAILED, IN_SYNC, Card
from icecdc_core.reporting.exit_states import failure_report
from icecdc_core.reporting.reports import WORST_FIRST, Report, text_table
from icecdc_core.runs.dead_letters import count_open_dead_letters
from icecdc_core.session.job_session import with_job_session
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.snapshots import head_snapshot_id, lag

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig

_MOST_TABLES, _READING = 10_000, "reading the positions"
_OF_BATCH = ("kind", "epoch", "from_snapshot_id", "to_snapshot_id", "groups_done", "failure")


@dataclass(frozen=True)
class IndexStatus:
    """The status of one index.

    Attributes:
        index: The alias that readers use.
        table: Its table.
        snapshot_id: The snapshot it equals; null before the first commit.
        lag_snapshots: Snapshots it is behind; null if this session cannot read the table.
        lag_seconds: Age in seconds of the oldest commit it lacks; null if this session cannot read the table.
        last_run: Its newest committed batch: kind, when, counts, seconds.
        pending: The batch that was begun and not committed: kind, epoch, range, failure; null if there is none.
        running: The run that has locked the index; null if there is none.
        dead_letters: Rejected documents that wait for a replay; null if this session cannot read them.
        problem: Why something of this is unknown.
        state: How the status is to be judged, one of `EXIT_STATES`.
    """

    index: str
    table: str
    snapshot_id: int | None = None
    lag_snapshots: int | None = None
    lag_seconds: float | None = None
    last_run: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, Any] | None = None
    running: dict[str, Any] | None = None
    dead_letters: int | None = None
    problem: str = ""
    state: str = "ok"


@dataclass(frozen=True)
class StatusReport(Report):
    """The status of every index of a positions index."""

    indexes: list[IndexStatus]

    @property
    def state(self) -> str:
        """The worst state of the indexes."""
        return min((each.state for each in self.indexes), key=WORST_FIRST.index, default="ok")

    @property
    def word(self) -> str:
        """The state in a word or two."""
        if self.state != "ok":
            return FAILED
        return BEHIND if any(each.lag_snapshots or each.pending for each in self.indexes) else IN_SYNC

    @property
    def line(self) -> str:
        """The status of the first index."""
        return _line(self.indexes[0]) if self.indexes else "not exported yet"

    def rows(self) -> list[tuple[str, str]]:
        """One line for each index."""
        return [(status.index, _line(status)) for status in self.indexes]

    def card(self) -> Card:
        """What a person sees first."""
        rows = [f"{each.index}, from {each.table}: {_line(each)}" for each in self.indexes]
        return super().card()._replace(title=f"{len(rows)} indexes", what="\n".join(rows))

    def text(self) -> str:
        """The report as a table of plain text."""
        rows = [(each.index, each.table, _line(each)) for each in self.indexes]
        return text_table([("index", "table", "status"), *rows]) if rows else "No index has a position."


@with_job_session
def status_of_index(spark: SparkSession, config: SyncConfig) -> StatusReport:
    """Return the status of the index of these parameters alone; see ``status``."""
    return _statuses(spark, config, {"term": {"index": config.index}})


@with_job_session
def status(spark: SparkSession, config: SyncConfig) -> StatusReport:
    """Return the status of every index of one positions index.

    Args:
        spark: A session in which the tables' catalogs are configured; the lag of tables it cannot load is unknown.
        config: The parameters of any of the jobs; only ``positions_index`` and those of the connection are used.

    Raises:
        OpenSearchUnreachableError: The cluster does not answer.
        DependencyError: The session is not supported.
    """
    return _statuses(spark, config)


def _statuses(spark: SparkSession, config: SyncConfig, *only: dict[str, Any]) -> StatusReport:
    reading = typed_errors(config.opensearch_url, _READING, config.opensearch_username)
    with closing(Connection.of(config).client()) as client, reading:
        if not client.indices.exists(index=config.positions_index):
            return StatusReport([])
        client.indices.refresh(index=config.positions_index)
        wanted = {"bool": {"filter": [{"term": {"type": "position"}}, *only]}}
        body = {"query": wanted, "sort": [{"index": "asc"}], "size": _MOST_TABLES}
        hits = client.search(index=config.positions_index, body=body)["hits"]["hits"]
        positions = [hit["_source"] for hit in hits]
        last = [_last_commit(client, config, str(source.get("index"))) for source in positions]
    return StatusReport([_status(spark, config, *found) for found in zip(positions, last, strict=True)])


def _status(spark: SparkSession, config: SyncConfig, source: dict[str, Any], last_run: dict[str, Any]) -> IndexStatus:
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for step in (_position, _lag, _dead_letters):
        try:
            found |= step(spark, config, source)
        except Exception as error:  # whatever is wrong with one table, the others have a status
            failed = failure_report(error, {})
            problems[str(failed["message"])] = str(failed["state"])
            if step is _position:
                break
    return IndexStatus(
        index=str(source.get("index")),
        table=str(source.get("table")),
        last_run=last_run,
        problem=" ".join(problems),
        state=min(problems.values(), key=WORST_FIRST.index, default="ok"),
        **found,
    )


def _position(spark: SparkSession, config: SyncConfig, source: dict[str, Any]) -> dict[str, Any]:
    position, holder = parse_position(source)
    pending = {name: getattr(position.batch, name) for name in _OF_BATCH} if position.batch else None
    return {
        "snapshot_id": position.snapshot_id,
        "pending": pending,
        "running": _running(holder) if holder else None,
    }


def _lag(spark: SparkSession, config: SyncConfig, source: dict[str, Any]) -> dict[str, Any]:
    metadata = IcebergTable(spark, source["table"]).metadata()
    branch = (source.get("selection") or {}).get("branch", config.branch)
    snapshots, seconds = lag(metadata, source.get("snapshot_id"), head_snapshot_id(metadata, branch))
    return {"lag_snapshots": snapshots, "lag_seconds": seconds}


def _dead_letters(spark: SparkSession, config: SyncConfig, source: dict[str, Any]) -> dict[str, Any]:
    # In the table of these parameters; a job with another dead_letter_table shows in its own status.
    own = config.replace(table=source["table"], index=source["index"], columns=[], identifier_columns=[])
    return {"dead_letters": count_open_dead_letters(spark, own)}


def _running(holder: LeaseHolder) -> dict[str, Any] | None:
    gone = is_gone(holder, LeaseHolder.this_process(""))
    # Whether a run on another machine is alive shows only when its lease expires.
    shown = {"run_id": holder.run_id, "since": holder.since, "host": holder.host.split("/")[0]}
    return None if gone else {**shown, "alive": None if gone is None else True}


def _last_commit(client: OpenSearch, config: SyncConfig, index: str) -> dict[str, Any]:
    names = ("kind", "updated_at", "seconds", "upserts", "deletes", "already_applied", "rejected", "run_id")
    found = committed_batches(client, config.positions_index, index, 1)
    return {name: found[0].get(name) for name in names} if found else {}


def _when(stored: object) -> str:
    try:
        return f"{datetime.fromisoformat(str(stored)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return "at an unknown time"


def _line(status: IndexStatus) -> str:
    parts = [f"snapshot {status.snapshot_id}" if status.snapshot_id is not None else "not exported yet"]
    if status.lag_snapshots is not None:
        parts.append(f"{status.lag_snapshots} snapshots, {status.lag_seconds or 0.0:,.0f} s behind")
    if status.last_run:
        parts.append(f"last {status.last_run.get('kind')} {_when(status.last_run.get('updated_at'))}")
    if status.pending:
        failure = f" ({status.pending['failure']})" if status.pending.get("failure") else ""
        parts.append(f"a begun {status.pending['kind']} is not finished{failure}")
    if status.running:
        parts.append(f"run {status.running['run_id']} is running")
    if status.dead_letters:
        parts.append(f"{status.dead_letters} dead letters")
    return "; ".join([*parts, *([status.problem] if status.problem else [])])
