"""An ingest seen from outside: what its topics have that it has not read, and what each table lacks. Writes nothing."""

import time
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.errors import IcecdcError, LostOffsetsError, TableNotFoundError, TopicReplacedError
from icecdc_core.ingest import commit_log, offsets
from icecdc_core.ingest.commit_log import BEHIND, LoggedJob, TableEntry
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.dead_letters import count_by_reason
from icecdc_core.ingest.decoding import routed_topics
from icecdc_core.ingest.kafka import Topics
from icecdc_core.ingest.offsets import Offsets, Routed
from icecdc_core.ingest.start_offsets import find_start
from icecdc_core.reporting import card as cards
from icecdc_core.reporting.reports import WORST_FIRST, Report, text_table
from icecdc_core.session.job_session import with_job_session
from icecdc_core.table.catalogs import load_table

Lags = list[dict[str, Any]]


@dataclass(frozen=True)
class IngestStatus(Report):
    """What an ingest has read, and what its tables have.

    Attributes:
        job: Name of the ingest.
        partitions: Of each `topic` and `partition`: the `end` of what can be read, the next offset to `read`,
            `lag_records` (offsets between them, so also transaction markers), and `lag_seconds`, the age of the first
            unread record by its Kafka timestamp; null if it did not come within ten seconds.
        tables: Of each `destination`: `state`, `error`, `rows` of its last batch, `offsets` that it recorded,
            `lag_records` and `lag_seconds` (other tables may get these records), and `valid_through`: the ISO time
            up to which it has every record, "" if unknown.
        dead_letters: `count` of each `table` and `reason`, values left out.
        problems: What the next run would end with, or why the lag is unknown.
        problem_state: The state of the worst problem.
    """

    job: str
    partitions: Lags = field(default_factory=list)
    tables: Lags = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    problem_state: str = "ok"

    @property
    def state(self) -> str:
        # A table may lack records of a topic that is no longer read.
        lacks = any(each["lag_records"] or each.get("state") == BEHIND for each in [*self.partitions, *self.tables])
        return min(self.problem_state, "behind" if lacks else "ok", key=WORST_FIRST.index)

    @property
    def word(self) -> str:
        return {"ok": cards.IN_SYNC, "behind": cards.BEHIND, "unknown": cards.UNKNOWN}.get(self.state, cards.FAILED)

    def card(self) -> cards.Card:
        unread = sum(each["lag_records"] for each in self.partitions)
        what = f"{unread:,} offsets of {len(self.partitions):,} partitions are not read yet"
        behind = (f"{each['destination']}: {each['error']}" for each in self.tables if each["state"] == BEHIND)
        letters = (f"{each['count']:,} {each['table']} {each['reason']}" for each in self.dead_letters[:10])
        facts = [("Tables behind", "\n".join(behind)), ("Dead letters", "\n".join(letters))]
        command = cards.command_for("ingest", None, self.job)
        return cards.Card(self.word, self.job, "\n".join([what, *self.problems]), facts, command)

    def text(self) -> str:
        rows = [(name, f"{lag:,}", remark) for name, lag, remark in self._bars()]
        return f"{super().text()}\n\n{text_table([('', 'unread', 'age'), *rows])}"

    def figure(self) -> str:
        title = "Unread offsets of partitions and tables, and the age of the first"
        bars = [(*bar, cards.BEHIND if bar[1] else cards.IN_SYNC) for bar in self._bars()]
        return cards.bars_html(title, bars)

    def _bars(self) -> list[tuple[str, int, str]]:
        """The partitions that lack most, then the tables."""
        bars = []
        for lag in [*_longest(self.partitions), *_longest(self.tables)]:
            name = lag.get("destination") or f"{lag['topic']}-{lag['partition']}"
            age = "unknown" if lag["lag_seconds"] is None else f"{lag['lag_seconds']:,.0f} s"
            through = f", complete up to {cards.moment(lag['valid_through'])}" if lag.get("valid_through") else ""
            bars.append((name.replace("`", ""), lag["lag_records"], age + through))
        return bars


def _longest(lags: Lags) -> Lags:
    return sorted(lags, key=lambda lag: -lag["lag_records"])[:20]


@with_job_session
def ingest_status(spark: SparkSession, config: IngestConfig) -> IngestStatus:
    """Return the status of an ingest, which may be running."""
    logged, times, problems = LoggedJob(), {}, dict[str, str]()
    log, routed = config.quoted_commit_log, routed_topics(spark, config)
    with suppress(TableNotFoundError):
        load_table(spark, log)
        logged, times = commit_log.read(spark, log, config.job), commit_log.valid_through(spark, log, config.job)
    with closing(Topics(spark, config)) as topics:
        try:
            start = find_start(topics, config.replace(on_lost_offsets="fail"), logged, {}, routed)
            problems |= {str(error): "lost" for error in start.cut_off.values()}
            if not logged.exists:
                problems[f"{config.job} has not run: {log} has no entry of it"] = "unknown"
                logged = replace(logged, offsets=start.start)
        except (LostOffsetsError, TopicReplacedError) as error:
            problems[str(error)] = error.state
        partitions, tables = measure(topics, logged, routed, seconds=10.0)
    for lag in tables:
        name, entry = lag["destination"], logged.tables[lag["destination"]]
        lag |= {"error": entry.error, "rows": entry.rows, "offsets": entry.offsets}
        lag["valid_through"] = times[name].isoformat() if name in times else ""
        if entry.uuid and (problem := _problem(spark, entry, config.job)):
            problems |= problem
            lag["valid_through"] = ""
    worst = min(problems.values(), key=WORST_FIRST.index, default="ok")
    return IngestStatus(config.job, partitions, tables, count_by_reason(spark, config), [*problems], worst)


def _problem(spark: SparkSession, entry: TableEntry, job: str) -> dict[str, str]:
    try:
        table = load_table(spark, entry.name)
        state = commit_log.table_state(table, commit_log.find_recorded(entry.name, table, job), entry)
    except TableNotFoundError:
        state = "dropped"
    except IcecdcError as error:
        return {str(error): error.state}
    is_as_written = state in ("current", "log is ahead")
    return {} if is_as_written else {f"{entry.name} was {state} since the ingest last wrote into it": "lost"}


def measure(topics: Topics, logged: LoggedJob, routed: Routed, seconds: float) -> tuple[Lags, Lags]:
    """Compare the topics' ends with what the job has read and what each table has; waits some seconds at most."""
    names, until = topics.names(), time.monotonic() + seconds
    earliest, latest, behind = topics.earliest(names), topics.latest(names), logged.behind

    def lags(read: Offsets, ends: Offsets) -> Lags:
        found = []
        start = offsets.at_most(offsets.furthest(earliest, read), latest)
        ages = topics.ages(start, ends, until)
        for topic, number, end in sorted(offsets.each(ends)):
            at = offsets.get(start, topic, number)
            known = {"topic": topic, "partition": number, "end": end, "read": at}
            found.append({**known, "lag_records": end - at, "lag_seconds": ages.get((topic, number))})
        return found

    partitions, tables = lags(logged.offsets, latest), []
    for name, entry in logged.tables.items():
        own = routed(name, latest)
        lacks = lags(behind[name], own) if name in behind else [each for each in partitions if each["topic"] in own]
        ages = [each["lag_seconds"] for each in lacks]
        oldest = None if None in ages else max(ages, default=0.0)
        records = sum(each["lag_records"] for each in lacks)
        tables.append({"destination": name, "state": entry.state, "lag_records": records, "lag_seconds": oldest})
    return partitions, tables
