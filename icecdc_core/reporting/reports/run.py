"""The report of an export, a sync, a repair or a replay."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from icecdc_core.opensearch.bulk.counts import COUNTERS, Counts
from icecdc_core.reporting.reports.base import Report, optional_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RunReport(Report):
    """What an export, a sync, a repair or a replay did.

    Attributes:
        kind: ``export``, ``sync``, ``repair`` or ``replay``.
        table: ``catalog.namespace.table``.
        index: The alias that readers use.
        from_snapshot_id: The snapshot that the run began at; null for an export, and before the first snapshot.
        to_snapshot_id: The snapshot that the index now equals; null for the export of an empty table.
        strategy: ``export``, ``reexport``, ``insert-only``, ``diff``, ``repair``, ``replay``, or ``none`` if there was
            nothing to do.
        upserts: Documents written.
        deletes: Documents deleted.
        carryovers_removed: Unchanged rows of rewritten files that were found and not sent.
        already_applied: Operations that the index had already, from an earlier attempt.
        rejected: Documents that OpenSearch refused for what they contain.
        seconds: Seconds the run took.
        snapshots: Snapshots in the range.
        steps: What was compared: snapshots, files and bytes of each step; for a replay, the fate of the dead letters.
        stage_seconds: Seconds spent in each stage, by its name.
        rejected_samples: Some rejected documents: id, status and reason.
        dry_run: Whether nothing was written.
        run_id: Identifies the run in logs and in the commit log.
        epoch: The number of the last batch; null if there was none.
        requests: Bulk requests sent.
        retries: Bulk requests sent again.
        bytes: Bytes of the bulk requests, without retries.
        lag_snapshots: Snapshots the index was behind when the run began; null if that was not determined.
        lag_seconds: Age in seconds of the oldest commit that the index lacked then; null if that was not determined.
        notes: Remarks about the run, such as why an export started over.
        stopped: Whether SIGTERM ended the polling.
        target_lag_seconds: ``target_lag`` in seconds; null if it is not set.
        lag_kept: Whether a polling run kept ``target_lag``: no poll took longer, and each commit that was made while it
            polled was searchable in time. Null without ``target_lag``, for a single sync, and if there was no such
            commit.
        worst_lag_seconds: Longest time in seconds from a commit until it was searchable. A polling run leaves out the
            commits that its first poll found. Null if there was no commit, and for the first export.
    """

    kind: str
    table: str
    index: str
    from_snapshot_id: int | None = None
    to_snapshot_id: int | None = None
    strategy: str = ""
    upserts: int = 0
    deletes: int = 0
    carryovers_removed: int = 0
    already_applied: int = 0
    rejected: int = 0
    seconds: float = 0.0
    snapshots: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    rejected_samples: list[dict[str, Any]] = field(default_factory=list)
    dry_run: bool = False
    run_id: str = ""
    epoch: int | None = None
    requests: int = 0
    retries: int = 0
    bytes: int = 0
    lag_snapshots: int | None = None
    lag_seconds: float | None = None
    notes: list[str] = field(default_factory=list)
    stopped: bool = False
    target_lag_seconds: float | None = None
    lag_kept: bool | None = None
    worst_lag_seconds: float | None = None

    @property
    def counts(self) -> Counts:
        """The counters, which add up over batches and runs."""
        return Counts(**{name: getattr(self, name) for name in COUNTERS})

    @property
    def line(self) -> str:
        """What was written, in a few words."""
        counts = {"upserts": self.upserts, "deletes": self.deletes, "rejected": self.rejected}
        found = [f"{count:,} {name}" for name, count in counts.items() if count or name != "rejected"]
        dry, stopped = "dry run: " if self.dry_run else "", "; stopped" if self.stopped else ""
        return f"{dry}{self.strategy}, {', '.join(found)}{stopped}"

    def then(self, later: RunReport) -> RunReport:
        """Add a later batch of the same run: counts are added up, the rest is the later report's."""
        return replace(
            later,
            from_snapshot_id=self.from_snapshot_id,
            steps=[*self.steps, *later.steps],
            notes=[*self.notes, *later.notes],
            rejected_samples=[*self.rejected_samples, *later.rejected_samples],
            **asdict(self.counts + later.counts),
        )

    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""
        return [
            ("run", self.kind + (" (dry run: nothing was written)" if self.dry_run else "")),
            ("table", self.table),
            ("index", self.index),
            ("from snapshot", optional_text(self.from_snapshot_id)),
            ("to snapshot", optional_text(self.to_snapshot_id)),
            ("snapshots", f"{self.snapshots:,}"),
            ("strategy", "none: up to date" if self.strategy == "none" else self.strategy),
            ("upserts", f"{self.upserts:,}"),
            ("deletes", f"{self.deletes:,}"),
            ("carryovers removed", f"{self.carryovers_removed:,}"),
            ("already applied", f"{self.already_applied:,}"),
            ("rejected", f"{self.rejected:,}"),
            ("bulk requests", f"{self.requests:,} ({self.retries:,} retried)" if self.requests else ""),
            ("behind at the start", _lag_text(self.lag_snapshots, self.lag_seconds)),
            ("longest lag of a commit", _worst_lag_text(self)),
            ("seconds", f"{self.seconds:,.1f}"),
            ("ended by", "SIGTERM" if self.stopped else ""),
            ("note", "; ".join(self.notes)),
        ]

    def figure(self) -> Figure:
        """What was written, and the time every stage took."""
        from icecdc_core.reporting import figures

        return figures.run_figure(self.to_dict())


def _lag_text(snapshots: int | None, seconds: float | None) -> str:
    if not snapshots or seconds is None:
        return ""
    return f"{snapshots:,} snapshots, {seconds:,.0f} s"


def _worst_lag_text(report: RunReport) -> str:
    parts = [] if report.worst_lag_seconds is None else [f"{report.worst_lag_seconds:,.1f} s"]
    if report.lag_kept is not None:
        parts.append(f"target {report.target_lag_seconds:g} s {'kept' if report.lag_kept else 'NOT kept'}")
    return ", ".join(parts)
