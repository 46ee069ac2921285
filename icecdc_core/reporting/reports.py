"""What a run did, as plain data: JSON, a small table, a figure, and progress bars on the way there."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icecdc_core.dependencies import ProgressBar, progress_bar
from icecdc_core.errors import ConfigError
from icecdc_core.opensearch.counts import Counts
from icecdc_core.reporting.text_tables import text_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Report(ABC):
    """What both kinds of report can do."""

    @property
    def state(self) -> str:
        """How the run ended, one of `exit_states.EXIT_STATES`."""
        return "ok"

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        return {**asdict(self), "state": self.state}  # type: ignore[call-overload]

    def to_json(self) -> str:
        """The report as one JSON object on one line."""
        return json.dumps(self.to_dict(), default=str, allow_nan=False)

    @property
    def line(self) -> str:
        """What came out, in a few words."""
        return ""

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""

    def text(self) -> str:
        """The report as a table of plain text, for a terminal."""
        return text_table([row for row in self.rows() if row[1]])

    def summary(self) -> pd.DataFrame:
        """The report as a small table for a notebook."""
        import pandas as pd

        rows = [row for row in self.rows() if row[1]]
        frame = pd.DataFrame(rows, columns=["", "value"]).set_index("")
        return frame.rename_axis(None)


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
        steps: What was compared: snapshots, files and bytes of each step; for a replay, what became of the letters.
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
        notes: What one should know about the run.
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
        return Counts(**{each.name: getattr(self, each.name) for each in fields(Counts)})

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
            ("from snapshot", _text(self.from_snapshot_id)),
            ("to snapshot", _text(self.to_snapshot_id)),
            ("snapshots", f"{self.snapshots:,}"),
            ("strategy", self.strategy),
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


@dataclass(frozen=True)
class ValidationReport(Report):
    """How the index compares with the table.

    Attributes:
        ok: Whether they are equal.
        source_rows: Rows of the table that were compared.
        index_documents: Documents of the index that were compared.
        missing: Rows without a document.
        extra: Documents without a row.
        stale: Documents whose content differs from their row.
        missing_ids: Some of their document ids.
        extra_ids: Some of their document ids.
        stale_ids: Some of their document ids.
        table: ``catalog.namespace.table``.
        index: The alias that readers use.
        snapshot_id: The snapshot compared with; null for an empty table.
        position_snapshot_id: The snapshot that the index should equal; null for an empty table.
        repaired: Documents written or deleted by ``repair``; the counts above are those after it.
        seconds: Seconds the run took.
        stage_seconds: Seconds spent in each stage, by its name.
        run_id: Identifies the run in logs.
    """

    ok: bool
    source_rows: int
    index_documents: int
    missing: int = 0
    extra: int = 0
    stale: int = 0
    missing_ids: list[str] = field(default_factory=list)
    extra_ids: list[str] = field(default_factory=list)
    stale_ids: list[str] = field(default_factory=list)
    table: str = ""
    index: str = ""
    snapshot_id: int | None = None
    position_snapshot_id: int | None = None
    repaired: int = 0
    seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    run_id: str = ""

    @property
    def state(self) -> str:
        """How the run ended, one of `exit_states.EXIT_STATES`."""
        return "ok" if self.ok else "differs"

    @property
    def line(self) -> str:
        """The verdict, in a few words."""
        if self.ok:
            return f"equal, {self.source_rows:,} rows" + (f", {self.repaired:,} repaired" if self.repaired else "")
        return f"NOT equal: {self.missing:,} missing, {self.extra:,} extra, {self.stale:,} stale"

    def text(self) -> str:
        """The report as a table of plain text, with samples of the ids that differ."""
        samples = {"missing": self.missing_ids, "extra": self.extra_ids, "stale": self.stale_ids}
        found = [(f"{kind} ids", ", ".join(ids)) for kind, ids in samples.items() if ids]
        return text_table([*self.rows(), *found])

    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""
        return [
            ("verdict", "equal" if self.ok else "NOT equal"),
            ("table", self.table),
            ("index", self.index),
            ("snapshot compared", _text(self.snapshot_id)),
            ("snapshot of the index", _text(self.position_snapshot_id)),
            ("rows in table", f"{self.source_rows:,}"),
            ("documents in index", f"{self.index_documents:,}"),
            ("missing", f"{self.missing:,}"),
            ("extra", f"{self.extra:,}"),
            ("stale", f"{self.stale:,}"),
            ("repaired", f"{self.repaired:,}"),
            ("seconds", f"{self.seconds:,.1f}"),
        ]

    def differences(self) -> pd.DataFrame:
        """The ids that differ (a sample), with what is wrong with each."""
        import pandas as pd

        found = [("missing", self.missing_ids), ("extra", self.extra_ids), ("stale", self.stale_ids)]
        return pd.DataFrame(
            [(kind, identifier) for kind, ids in found for identifier in ids],
            columns=["difference", "document id"],
        )

    def figure(self) -> Figure:
        """Rows against documents, the differences, and the time every stage took."""
        from icecdc_core.reporting import figures

        return figures.validation_figure(self.to_dict())


def report_json(report: Report | Mapping[str, Any]) -> str:
    """A report, or the plain values of one, as one JSON object on one line."""
    return json.dumps(dict(report), default=str) if isinstance(report, Mapping) else report.to_json()


def check_report_path(path: str) -> None:
    """Prove that a report can be written there, before there is one; a file that is there stays as it is.

    Raises:
        ConfigError: It cannot be written.
    """
    if not path:
        return
    with _writable(path) as target:
        known = target.exists()
        target.open("a", encoding="utf-8").close()
        if not known:
            target.unlink()


def write_report(report: Report | Mapping[str, Any], path: str) -> Path:
    """Write the report as JSON to a file, folders made as needed.

    Raises:
        ConfigError: The file cannot be written.
    """
    with _writable(path) as target:
        target.write_text(report_json(report) + "\n", encoding="utf-8")
    return target


@contextmanager
def _writable(path: str) -> Iterator[Path]:
    try:
        target = Path(path).expanduser()
        target.parent.mkdir(parents=True, exist_ok=True)
        yield target
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"The report cannot be written: {getattr(error, 'strerror', None) or error}",
            subject="report_path",
            value=path,
            remedy="give a path in a folder that exists and may be written to, or leave it empty",
        ) from error


@contextmanager
def progress(total: int | None, description: str) -> Iterator[ProgressBar]:
    """A progress bar: in a notebook and on a terminal, silent in a log file.

    Args:
        total: How much there is to do; None when nobody knows.
        description: What is being done, in a few words.
    """
    in_notebook = _in_notebook()
    with progress_bar(
        total=total,
        desc=description,
        bar_format="{desc}: {percentage:3.0f}% |{bar:40}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]",
        mininterval=0.5,
        # A plain text bar on stdout: widget bars need a live kernel to be seen again in a saved notebook.
        file=sys.stdout if in_notebook else sys.stderr,
        disable=False if in_notebook else None,
    ) as bar:
        yield bar


def _lag_text(snapshots: int | None, seconds: float | None) -> str:
    if not snapshots or seconds is None:
        return ""
    return f"{snapshots:,} snapshots, {seconds:,.0f} s"


def _worst_lag_text(report: RunReport) -> str:
    parts = [] if report.worst_lag_seconds is None else [f"{report.worst_lag_seconds:,.1f} s"]
    if report.lag_kept is not None:
        parts.append(f"target {report.target_lag_seconds:g} s {'kept' if report.lag_kept else 'NOT kept'}")
    return ", ".join(parts)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None
