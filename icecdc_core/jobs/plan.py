"""The plan: what a sync would do with an index and what that costs, by the sync's own decisions; writes nothing."""

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core import errors
from icecdc_core.commits.position import Position
from icecdc_core.config import SyncConfig
from icecdc_core.jobs.export import dry_run_export
from icecdc_core.jobs.sync import checked_look, dry_run_sync, nothing_to_do
from icecdc_core.opensearch.index_settings import require_pipelines
from icecdc_core.opensearch.indexes import trial_index, try_documents
from icecdc_core.reporting.reports import Report, RunReport
from icecdc_core.runs import plan as plans
from icecdc_core.runs.batch import Tally, position_at, trial_in_place
from icecdc_core.runs.run import Run
from icecdc_core.table.snapshots import ancestors
from icecdc_core.table.source import Source

_DAY_MS = 24 * 3600 * 1000
_WHY = {plans.CREATE: "it has no documents yet", plans.SYNC: "rows changed", plans.NOTHING: "it is in sync"}


@dataclass(frozen=True, kw_only=True)
class PlanReport(RunReport):
    """What a sync would do with an index, and what that costs: what a dry run reports, and this.

    Attributes:
        action: ``create``, ``follow`` (its spec, in place), ``export`` (again), ``sync`` or ``nothing``; ``notes`` say
            why.
        refused_by: The policy that is ``fail``, so that a sync refuses to export again; else empty.
        documents: Documents to write or delete. ``bytes`` is about that of their bulk lines, without vectors.
        new_vectors: Texts without a stored vector, at most.
        estimated_seconds: Seconds at the rate of the last export of ``rate_from``; null if there was none.
        rate_from: This index, or another one with the same ``positions_index``.
        sampled: Documents that a trial index got. ``rejected`` counts those that OpenSearch refused.
        documents_a_day: Documents that one sync a day would have rewritten in the last seven days, or in the history if
            it is shorter; null if that is unknown or the spec is not new.
        spec: A digest of the spec, for ``only_as_planned``.
        replaces: The physical index that an export replaces; if there is none, with what the index begins.
    """

    action: str
    refused_by: str = ""
    documents: int = 0
    new_vectors: int = 0
    estimated_seconds: float | None = None
    rate_from: str = ""
    sampled: int = 0
    documents_a_day: float | None = None
    spec: str = ""
    replaces: str = ""

    card = Report.card

    @property
    def state(self) -> str:
        return "ok" if self.action == plans.NOTHING else "changes"

    @property
    def line(self) -> str:
        cost = f"{self.documents:,} documents, {self.bytes / 1e6:,.1f} MB, {self.new_vectors:,} new vectors"
        cost += f", about {self.estimated_seconds:,.0f} s" if self.rate_from else ""
        return f"{self.action}: {cost}" + (f", {self.documents_a_day:,.0f} a day" if self.documents_a_day else "")

    @property
    def problems(self) -> list[str]:
        refused = [f"a sync refuses this, because {self.refused_by} is fail; the export does it"]
        some = "; ".join(f"{each['id']}: {each['reason']}" for each in self.rejected_samples[:5])
        conflicts = [f"OpenSearch refuses {self.rejected:,} of {self.sampled:,} sampled documents: {some}"]
        return [*self.notes, *(refused if self.refused_by else ()), *(conflicts if self.rejected else ())]


def plan_index(spark: SparkSession, config: SyncConfig) -> PlanReport:
    """Say what a sync would do with an index, why, and what that costs; it writes only a trial index, and deletes it.

    Raises:
        IcecdcError: What the sync would raise before its first write, unless only a policy stops it from exporting
            again: that is planned, and ``refused_by`` names the policy.
    """
    with Run("plan", spark, config.replace(dry_run=True)) as run:
        with run.stage("check"):
            position, source = checked_look(run)
            require_pipelines(run.client, config)
        try:
            report = _plan(run, position, source, *plans.next_action(position, source, run.config))
        except (errors.SchemaChangeError, errors.HistoryGapError, errors.TableReplacedError) as error:
            policy = "on_schema_change" if isinstance(error, errors.SchemaChangeError) else "on_history_gap"
            report = _plan(run, position, source, plans.EXPORT, error)
            report = replace(report, refused_by=policy if getattr(config, policy) == "fail" else "")
        return run.finish(report)


def _plan(run: Run, position: Position, source: Source, action: str, reason: errors.IcecdcError | None) -> PlanReport:
    tally, tried = Tally(), dict[str, Any]()
    if action == plans.NOTHING:
        found = nothing_to_do(run, source)
    else:
        found = dry_run_export(run, position, source, tally) if reason else dry_run_sync(run, position, source, tally)
        action = plans.EXPORT if found.strategy == "reexport" else action
        trial = trial_index(run.client, run.config, source.schema)
        if action in (plans.FOLLOW, plans.SYNC):
            trial = trial_in_place(run, source, position)
        with run.stage("try documents"), trial as name:
            result = try_documents(run.client, run.config, name, tally.sample)
        tried = {"rejected": result.counts.rejected, "rejected_samples": result.rejected_samples}
        tried["sampled"] = result.counts.operations
    documents = found.upserts + found.deletes
    notes = [reason.message, *found.notes] if reason else found.notes or [_WHY.get(action, "")]
    costs = {"documents": documents, "bytes": tally.bytes, "new_vectors": tally.new_texts, **_estimate(run, documents)}
    known: dict[str, Any] = {"kind": "plan", "notes": notes, "spec": plans.planned_spec(source)}
    known["replaces"] = plans.replaced_by(position, run.config)
    if action in (plans.CREATE, plans.FOLLOW, plans.EXPORT):
        known["documents_a_day"] = _documents_a_day(run, source)
    return PlanReport(**{**vars(found), **known, **costs, **tried}, action=action)


def _estimate(run: Run, documents: int) -> dict[str, Any]:
    log = run.positions.log
    for entry in (*log(1, kind="export"), *log(1, "updated_at", kind="export", index=None)):
        if entry["upserts"] and entry["seconds"]:
            seconds = documents * entry["seconds"] / entry["upserts"]
            return {"estimated_seconds": round(seconds, 1), "rate_from": entry["index"]}
    return {}


def _documents_a_day(run: Run, source: Source) -> float | None:
    """Count what a sync at the end of each of the last days would have written, with the spec of today."""
    now, documents, first = time.time() * 1000, 0, _as_of(source, 0)
    heads = [each.metadata.by_id[each.head] for each in (first, *first.nested.values()) if each.head is not None]
    days = min(7.0, max(1.0, *((now - head.timestamp_ms) / _DAY_MS for head in heads)))
    with suppress(errors.IcecdcError):  # rows of the past may break rules that today's rows keep
        for older, newer in pairwise([*(_as_of(source, now - day * _DAY_MS) for day in range(7, 0, -1)), source]):
            start = Position(run.config.index, run.config.table, source.metadata.table_uuid, physical_index="any")
            start = position_at(start, older, older.head, plans.nested_positions(older, plans.heads(older)))
            report = dry_run_sync(run, start, newer)
            documents += report.upserts + report.deletes
        return round(documents / days, 1)
    return None


def _as_of(source: Source, timestamp_ms: float) -> Source:
    """The source at the newest snapshots before a time; of a table that has none, at its oldest one."""
    chain, known = ancestors(source.metadata, source.head), source.metadata.by_id
    head = next((each for each in chain if known[each].timestamp_ms <= timestamp_ms), chain[-1] if chain else None)
    nested = {name: _as_of(each, timestamp_ms) for name, each in source.nested.items()}
    return replace(source, head=head, nested=nested)
