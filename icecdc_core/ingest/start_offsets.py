"""Where a run starts, and what each of its tables has: by the commit log, the tables and the topics."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from icecdc_core.columns import quoted
from icecdc_core.config.values import parse_start_point, split_table_name
from icecdc_core.errors import ConfigError, IcecdcError, LostOffsetsError, TableNotFoundError, TopicReplacedError
from icecdc_core.ingest import offsets
from icecdc_core.ingest.branches import on_branch
from icecdc_core.ingest.commit_log import WRITTEN, LoggedJob, TableEntry, find_recorded
from icecdc_core.ingest.config import OWN_TABLES, IngestConfig, parse_offsets, quoted_table
from icecdc_core.ingest.kafka import Topics
from icecdc_core.ingest.offsets import Offsets, Routed
from icecdc_core.table.catalogs import catalog_error, load_table


@dataclass(frozen=True)
class StreamStart:
    topics: list[str]
    start: Offsets
    is_at_end: bool = False
    lost: list[dict[str, Any]] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=dict)
    cut_off: dict[str, Exception] = field(default_factory=dict)
    given_up: dict[str, TableEntry] = field(default_factory=dict)


def find_start(
    topics: Topics, config: IngestConfig, logged: LoggedJob, recorded: dict[str, Offsets], routed: Routed
) -> StreamStart:
    """Find out where a stream starts; `recorded`: the offsets of the tables, if the commit log was removed."""
    names = topics.names()
    topic_ids = with_new_topics(logged.topic_ids, topics.ids(names))
    earliest, latest = topics.earliest(names), topics.latest(names)
    cut_off: dict[str, Exception] = {}
    given_up, skipped = _give_up(logged, names, routed) if config.on_lost_offsets == "continue" else ({}, [])
    if logged.exists:
        wanted = _with_new_partitions(logged.offsets, earliest)
        for table, left_behind in logged.behind.items():
            again = _with_new_partitions(left_behind, routed(table, earliest))
            gone = offsets.removed(again, earliest)
            if gone and config.on_lost_offsets == "fail":
                cut_off[table] = _lost_error(f"table {table} was left behind at", gone)
            else:
                wanted = offsets.at_most(wanted, again)
    elif recorded:
        own = [_with_new_partitions(each, routed(table, earliest)) for table, each in recorded.items()]
        # A topic of which no table is there is read from its beginning.
        wanted = _with_new_partitions(reduce(offsets.at_most, own, offsets.furthest(*own)), earliest)
    else:
        wanted = _first_start(topics, names, config, earliest, latest)
    for topic, partition, offset in offsets.each(wanted):
        end = offsets.get(latest, topic, partition)
        if offset > end:
            # No policy helps: the tables would skip the new records below this offset as written.
            raise _replaced_error(
                f"The topic ends at offset {end}, before offset {offset} up to which it was read: it was deleted and "
                "made again, or lost its end, or isolation_level was read_uncommitted and a transaction is open",
                f"{topic}-{partition}",
                "run again when all transactions have ended; if it is the same then, ",
            )
    gone = offsets.removed(wanted, earliest)
    if gone and config.on_lost_offsets == "fail":
        raise _lost_error("was read only up to", gone)
    lost = [{"topic": t, "partition": p, "from": offset, "to": first} for t, p, offset, first in gone + skipped]
    start = offsets.furthest(wanted, offsets.from_entries((t, p, first) for t, p, _, first in gone))
    return StreamStart(names, start, offsets.covers(start, latest), lost, topic_ids, cut_off, given_up)


def _give_up(
    logged: LoggedJob, names: list[str], routed: Routed
) -> tuple[dict[str, TableEntry], list[tuple[str, int, int, int]]]:
    """Move tables past the records that they lack of topics that are not read; returns the entries and the records."""
    left_out = {topic: parts for topic, parts in logged.offsets.items() if topic not in names}
    since, moved = left_out, {}
    for table, left_behind in logged.behind.items():
        end = {topic: parts for topic, parts in routed(table, left_out).items() if topic in left_behind}
        if offsets.covers(left_behind, end):
            continue
        start = offsets.from_entries((t, p, offsets.get(left_behind, t, p)) for t, p, _ in offsets.each(end))
        since, reached = offsets.at_most(since, start), offsets.furthest(left_behind, end)
        entry = replace(logged.tables[table], offsets=reached)
        is_complete = offsets.covers({**left_out, **reached}, routed(table, logged.offsets))
        moved[table] = replace(entry, state=WRITTEN, error="") if is_complete else entry
    return moved, offsets.removed(since, left_out)


def with_new_topics(known: dict[str, str], present: dict[str, str]) -> dict[str, str]:
    for name, identifier in present.items():
        if known.get(name, identifier) != identifier:
            raise _replaced_error("The topic is not the one that was read: it was deleted and made again", name)
    return {**known, **present}


def _with_new_partitions(wanted: Offsets, earliest: Offsets) -> Offsets:
    """Return an offset for every partition: the wanted one, else its beginning, as it was added since."""
    return offsets.from_entries(
        (topic, p, offsets.get(wanted, topic, p, first)) for topic, p, first in offsets.each(earliest)
    )


def _first_start(topics: Topics, names: list[str], config: IngestConfig, earliest: Offsets, latest: Offsets) -> Offsets:
    wanted = config.starting_offsets
    if wanted.startswith("{"):
        given = parse_offsets(wanted)
        for topic, partition, offset in offsets.each(given):
            end = offsets.get(latest, topic, partition, -1)
            if offset > end:
                missing = "which this job does not read" if end < 0 else f"which ends before offset {offset}"
                raise ConfigError(
                    f"starting_offsets names partition {partition} of topic {topic}, {missing}",
                    subject="starting_offsets",
                    value=wanted,
                    remedy="name partitions of the topics that are read, and offsets that they have",
                )
        return _with_new_partitions(given, earliest)
    moment = parse_start_point(wanted)
    if isinstance(moment, datetime):
        return topics.at(names, moment)
    return latest if moment == "latest" else earliest


def _lost_error(reader: str, gone: list[tuple[str, int, int, int]]) -> LostOffsetsError:
    topic, partition, offset, first = gone[0]
    return LostOffsetsError(
        f"The topic begins at offset {first}, but {reader} offset {offset}: its retention removed "
        f"{first - offset} records before they were read ({len(gone)} partitions are affected)",
        subject="topics",
        value=f"{topic}-{partition}",
        remedy="restore the records from another source, then set on_lost_offsets=continue once; raise the topic's "
        "retention or run more often",
    )


def _replaced_error(message: str, value: str, first: str = "") -> TopicReplacedError:
    return TopicReplacedError(
        message,
        subject="topics",
        value=value,
        remedy=f"{first}ingest this topic under a new job name, and if it has records that were ingested before, with "
        "starting_offsets after them; the rows of the old topic stay",
    )


def known_tables(spark: SparkSession, config: IngestConfig, logged: LoggedJob) -> list[str]:
    if config.route_by in ("table", "regex"):
        return [quoted_table(table) for table in config.routes or [config.table]]
    try:
        listed = spark.sql(f"SHOW TABLES IN {config.quoted_namespace}").collect()
    except (PySparkException, Py4JError) as error:
        raise catalog_error(error, spark, config.quoted_namespace) from error
    names = (row["tableName"] for row in listed if not row["tableName"].lower().startswith(OWN_TABLES))
    existing = (f"{config.quoted_namespace}.{quoted(name)}" for name in names)
    return sorted({*logged.tables, *existing} - config.own_tables)


def ignores_case(spark: SparkSession, config: IngestConfig) -> bool:
    """Whether the catalog finds the commit log by a name in another case, as Hive's does."""
    *parts, name = split_table_name(config.quoted_commit_log)
    with suppress(IcecdcError):
        load_table(spark, ".".join(map(quoted, (*parts, name.swapcase()))))
        return True
    return False


def recorded_offsets(spark: SparkSession, config: IngestConfig) -> dict[str, Offsets]:
    recorded, broken = dict[str, Offsets](), None
    for name in known_tables(spark, config, LoggedJob()):
        try:
            table = on_branch(load_table(spark, name), config.for_table(name).branch)
            recorded[name] = find_recorded(name, table, config.job).offsets
        except IcecdcError as error:
            recorded[name] = {}
            broken = broken if isinstance(error, TableNotFoundError) else error
    # If any table records offsets, the job ran. Then a table without offsets may lack all records.
    if any(recorded.values()):
        return recorded
    if broken is not None and config.starting_offsets != "earliest":  # what it records may be earlier
        raise broken
    return {}


class RefillError(IcecdcError):
    """The table is to be filled again, from `offsets` on."""

    offsets: Offsets
