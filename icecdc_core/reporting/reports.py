"""Reports: what a run did, as plain data, which become a card, a page or JSON."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from icecdc_core.errors import unwritable_error
from icecdc_core.opensearch.counts import COUNTERS
from icecdc_core.reporting import card as cards
from icecdc_core.reporting.exit_states import utc_now


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as text with aligned columns; a line break within a cell becomes a blank."""
    cells = [[re.sub(r"\s+", " ", cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


@dataclass(frozen=True, kw_only=True)
class Report:
    ended_at: str = field(default_factory=utc_now, compare=False)

    @property
    def state(self) -> str:
        """How the run ended, one of `exit_states.EXIT_STATES`."""
        return "ok"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "state": self.state}

    def to_json(self) -> str:
        """The report as one JSON object on one line."""
        return json.dumps(self.to_dict(), default=str, allow_nan=False)

    @property
    def line(self) -> str:
        return ""

    def text(self) -> str:
        return cards.card_text(self.card())

    @property
    def word(self) -> str:
        return {"ok": "done", "changes": "changes"}.get(self.state, cards.FAILED)

    def card(self) -> cards.Card:
        table, index, problems = (getattr(self, name, "") for name in ("table", "index", "problems"))
        command = cards.command_for("sync", table, index) if table and self.state == "ok" else ""
        title = ", from ".join(filter(None, (index, table)))
        return cards.Card(self.word, title, "\n".join([self.line, *problems]), [("Ended", self.ended)], command)

    def bars(self) -> list[cards.Bar]:
        """For a status: how many seconds each index is behind."""
        return []

    def figure(self) -> str:
        """What is shown below the card, as HTML."""
        bars = self.bars()
        return cards.bars_html("Seconds behind the tables", bars) if len(bars) > 1 else ""

    @property
    def ended(self) -> str:
        seconds = getattr(self, "seconds", None)
        return cards.moment(self.ended_at) + ("" if seconds is None else f", after {seconds:,.1f} s")

    def _repr_html_(self) -> str:
        return report_html(self)


@dataclass(frozen=True)
class RunReport(Report):
    """What an export, a sync, a repair, a replay or a rollback did.

    Attributes:
        kind: ``export``, ``sync``, ``repair``, ``replay`` or ``rollback``.
        table: ``catalog.namespace.table``.
        index: The alias that readers use.
        from_snapshot_id: The snapshot that the run began at; null for an export, and before the first snapshot.
        to_snapshot_id: The snapshot that the index now equals; null for the export of an empty table.
        nested_snapshots: The snapshot of each nested table that it now equals.
        strategy: How rows were found: ``diff`` compares changed files before and after, ``insert-only`` reads new
            files, ``export`` and ``reexport`` read the whole table, ``repair`` and ``replay`` write single documents
            again; ``none``: there was nothing to do.
        upserts: Documents written.
        deletes: Documents deleted.
        carryovers_removed: Unchanged rows of rewritten files that were found and not sent.
        already_applied: Operations that the index had already, from an earlier attempt.
        rejected: Documents that OpenSearch refused for what they contain.
        drifted: Updates and deletes that did not find their document, so the index had not been in sync.
        drifted_ids: Some of their document ids.
        seconds: Seconds the run took.
        snapshots: Snapshots in the range.
        steps: What was compared: snapshots, files and bytes of each step; for a replay, the fate of the dead letters.
            A run that polls keeps the last hundred.
        stage_seconds: Seconds spent in each stage, by its name.
        rejected_samples: Some rejected documents: id, status and reason. A run that polls keeps the last hundred.
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
        audit: With ``audit_seconds``: ``parts`` of the index that were compared, ``differences`` that were found, and
            the ``failure`` of the last comparison.
        rows_rewritten: Rows of the files that the snapshots in the range added and removed, by their own summaries and
            without compactions; null for an export.
    """

    kind: str
    table: str
    index: str
    from_snapshot_id: int | None = None
    to_snapshot_id: int | None = None
    nested_snapshots: dict[str, int | None] = field(default_factory=dict)
    strategy: str = ""
    upserts: int = 0
    deletes: int = 0
    carryovers_removed: int = 0
    already_applied: int = 0
    rejected: int = 0
    drifted: int = 0
    drifted_ids: list[str] = field(default_factory=list)
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
    audit: dict[str, Any] = field(default_factory=dict)
    rows_rewritten: int | None = None

    def then(self, later: RunReport) -> RunReport:
        """Add a later batch of the same run: counts are added up, the rest is the later report's."""
        return replace(
            later,
            from_snapshot_id=self.from_snapshot_id,
            steps=[*self.steps, *later.steps],
            notes=[*self.notes, *later.notes],
            rejected_samples=[*self.rejected_samples, *later.rejected_samples],
            drifted_ids=[*self.drifted_ids, *later.drifted_ids],
            rows_rewritten=(self.rows_rewritten or 0) + (later.rows_rewritten or 0),
            **{name: getattr(self, name) + getattr(later, name) for name in COUNTERS},
        )

    def card(self) -> cards.Card:
        done = ("to write", "to delete") if self.dry_run else ("written", "deleted")
        what = f"{self.upserts:,} documents {done[0]}, {self.deletes:,} {done[1]}"
        word, job, lag, before = cards.IN_SYNC, "sync" if self.kind == "export" else "validate", cards.UP_TO_DATE, ""
        if self.lag_snapshots and self.lag_seconds is not None:
            before = cards.lag_text(self.lag_snapshots, self.lag_seconds)
        if self.kind == "rollback":
            word, job, lag, what = cards.BEHIND, "sync", "", "Readers see the index from before the last export."
        elif self.kind == "replay":
            again = f", {self.rejected:,} refused again" if self.rejected else ""
            word, lag = cards.BEHIND if self.rejected else "done", ""
            what = f"{what}: dead letters, which OpenSearch had refused before{again}"
        elif self.strategy == "none" and not self.rejected:
            word, what = cards.NOTHING, "The index has every change of the table."
        elif self.dry_run:
            word, job, lag = cards.BEHIND, self.kind, before
        elif self.rejected:
            word, job, what = cards.BEHIND, "replay", f"{what}, {self.rejected:,} refused by OpenSearch (dead letters)"
        elif self.drifted:
            some = ", ".join(self.drifted_ids[:5])
            what = f"{what}; {self.drifted:,} documents had been missing, others may be: {some}"
        rewritten = self.rows_rewritten or 0
        changed = self.upserts + self.deletes + self.already_applied + self.rejected
        rows = f"{rewritten:,} rewritten by the table's commits, {changed:,} really changed"
        facts = [
            # An update rewrites two rows, the old one and the new one.
            ("Rows", rows if rewritten > 2 * changed else ""),
            ("Lag", f"{lag} (before: {before})" if before and not self.dry_run else lag),
            ("Target lag", {True: "kept", False: "NOT kept", None: ""}[self.lag_kept]),
            ("Audit", ", ".join(f"{value} {name}" for name, value in self.audit.items() if value != "")),
            ("Ended", self.ended + ", by SIGTERM" * self.stopped),
            ("Run id", self.run_id),
            ("Note", "\n".join(self.notes)),
        ]
        command = cards.command_for(job, self.table, self.index)
        return cards.Card(word, f"{self.index}, from {self.table}", what, facts, command)


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
        nested_snapshots: The snapshot of each nested table compared with.
        position_nested_snapshots: The snapshot of each nested table that the index should equal.
        repaired: Documents written or deleted by ``repair``; the counts above are those after it.
        part: The part of the document ids that was compared, such as ``3/100``; empty: everything.
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
    nested_snapshots: dict[str, int | None] = field(default_factory=dict)
    position_nested_snapshots: dict[str, int | None] = field(default_factory=dict)
    repaired: int = 0
    part: str = ""
    seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    run_id: str = ""

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.stale

    def then(self, later: ValidationReport) -> ValidationReport:
        """Return one report on parts of an index."""
        found = [f"{kind}{end}" for kind in ("missing", "extra", "stale") for end in ("", "_ids")]
        counts = ("source_rows", "index_documents", *found)
        sums = {name: getattr(self, name) + getattr(later, name) for name in counts}
        return replace(later, ok=self.ok and later.ok, **sums)

    @property
    def state(self) -> str:
        return "ok" if self.ok else "differs"

    @property
    def is_behind(self) -> bool:
        compared, position = self.snapshot_id, self.position_snapshot_id
        return (compared, self.nested_snapshots) != (position, self.position_nested_snapshots)

    def card(self) -> cards.Card:
        compared = cards.snapshots_text(self.snapshot_id, self.nested_snapshots)
        position = cards.snapshots_text(self.position_snapshot_id, self.position_nested_snapshots)
        word, job = (cards.BEHIND, "sync") if self.is_behind else ("differs", "repair")
        samples = {"Missing": self.missing_ids, "Extra": self.extra_ids, "Stale": self.stale_ids}
        part = f"part {self.part}, " if self.part else ""
        facts = [
            ("Compared", f"{part}{compared}, {self.source_rows:,} rows, {self.index_documents:,} documents"),
            ("Lag", f"the index is at {position}" if self.is_behind else cards.UP_TO_DATE),
            *((f"{kind} ids", ", ".join(ids)) for kind, ids in samples.items()),
            ("Ended", self.ended),
            ("Run id", self.run_id),
        ]
        what = f"NOT equal: {self.missing:,} missing, {self.extra:,} extra, {self.stale:,} stale"
        if self.ok:
            word, job = cards.IN_SYNC, "sync"
            what = f"equal in every field, {self.source_rows:,} rows"
            what += f", {self.repaired:,} repaired" if self.repaired else ""
        command = cards.command_for(job, self.table, self.index)
        return cards.Card(word, f"{self.index}, from {self.table}", what, facts, command)


def report_json(report: Report | Mapping[str, Any]) -> str:
    return json.dumps(dict(report), default=str) if isinstance(report, Mapping) else report.to_json()


def check_report_path(path: str, subject: str = "report_path") -> None:
    """Prove that a report can be written there, before there is one; a file that is there stays as it is."""
    if path:
        known = os.path.exists(os.path.expanduser(path))  # which refuse nothing, unlike Path
        written = _write(path, "", "a", subject)
        if not known:
            written.resolve().unlink()  # not a link to it


def write_report(report: Report | Mapping[str, Any], path: str) -> Path:
    return _write(path, report_json(report) + "\n")


def write_page(report: Report | Mapping[str, Any], path: str) -> Path:
    html = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>icecdc</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>:root { color-scheme: light dark } body { font: 16px/1.5 system-ui, sans-serif; margin: 1em auto; "
        f"max-width: 60em; padding: 0 .8em }}</style></head><body>{report_html(report)}</body></html>\n"
    )
    return _write(path, html, subject="html")


def _write(path: str, text: str, mode: str = "w", subject: str = "report_path") -> Path:
    try:
        target = Path(path).expanduser()
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open(mode, encoding="utf-8") as file:
            file.write(text)
        return target
    except (OSError, ValueError, RuntimeError) as error:
        raise unwritable_error(subject, path, error) from error


# The states, those first that a retry does not help.
WORST_FIRST = (
    *("failed", "lost", "data", "config", "access", "reexport", "differs", "partial", "retry"),
    *("lagging", "unknown", "behind", "locked", "changes", "ok"),
)


@dataclass(frozen=True)
class ManyReport(Report):
    """How a job ended for each of many indexes, or ingests.

    Attributes:
        indexes: The report of each by its name, in the order of the file; the failure report if its job failed.
        seconds: Seconds that all of them took together.
        section: ``indexes`` or ``ingests``, the key of the reports in JSON.
    """

    indexes: dict[str, Report | dict[str, Any]]
    seconds: float = 0.0
    section: str = "indexes"

    @property
    def states(self) -> dict[str, str]:
        return {name: str(_values(report)["state"]) for name, report in self.indexes.items()}

    @property
    def state(self) -> str:
        return min(self.states.values(), key=WORST_FIRST.index, default="ok")

    def to_dict(self) -> dict[str, Any]:
        indexes = {name: _values(report) for name, report in self.indexes.items()}
        return {"state": self.state, self.section: indexes, "seconds": self.seconds, "ended_at": self.ended_at}

    @property
    def word(self) -> str:
        words = {"differs": "differs", "locked": cards.NOTHING, "partial": cards.BEHIND, "behind": cards.BEHIND}
        return {**words, "unknown": cards.UNKNOWN}.get(self.state, super().word)

    def card(self) -> cards.Card:
        what = ", ".join(f"{count} {state}" for state, count in Counter(self.states.values()).items())
        return super().card()._replace(title=f"{len(self.indexes)} {self.section}", what=what)

    def bars(self) -> list[cards.Bar]:
        failed = {name: [(name, 0.0, self.states[name], cards.FAILED)] for name in self.indexes}
        found = (each.bars() if isinstance(each, Report) else failed[name] for name, each in self.indexes.items())
        return [bar for bars in found for bar in bars]

    def text(self) -> str:
        """A table, those that took longest first."""
        entry = "index" if self.section == "indexes" else "job"
        rows, problems, states = [(entry, "state", "what", "seconds", "error")], [], self.states
        seconds = {name: _values(report).get("seconds") for name, report in self.indexes.items()}
        for name, took in sorted(seconds.items(), key=lambda each: -(each[1] or 0.0)):
            report = self.indexes[name]
            if isinstance(report, Report):
                what, error = report.line or report.card().what, ""
                problems += [f"{name}: {problem}" for problem in getattr(report, "problems", ())]
            else:
                what, error = cards.in_few_words(str(report.get("message", ""))), str(report["error"])
            rows.append((name, states[name], what, "" if took is None else f"{took:,.1f}", error))
        return "\n".join([f"{text_table(rows)}\n", *problems, f"{self.state} in {self.seconds:,.1f} s"])


def _values(report: Report | dict[str, Any]) -> dict[str, Any]:
    return report if isinstance(report, dict) else report.to_dict()


def report_html(report: Report | Mapping[str, Any]) -> str:
    """Return a report as HTML: the card, all values folded, and what it has of each index; of a failed run the card."""
    if not isinstance(report, Report):
        return cards.card_html(cards.failure_card(report))
    values = escape(json.dumps(report.to_dict(), indent=1, default=str))
    values = f'<details><summary>All values</summary><pre style="white-space: pre-wrap">{values}</pre></details>'
    parts = report.indexes.values() if isinstance(report, ManyReport) else ()
    return cards.card_html(report.card()) + report.figure() + "".join(map(report_html, parts)) + values
