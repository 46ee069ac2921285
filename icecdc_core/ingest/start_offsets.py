"""Start offsets of a run: from the commit log or the tables, checked against what the topics still have."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from icecdc_core.config.values import parse_start_point
from icecdc_core.errors import ConfigError, LostOffsetsError, TopicReplacedError
from icecdc_core.ingest import offsets
from icecdc_core.ingest.commit_log import LoggedJob
from icecdc_core.ingest.config import parse_offsets
from icecdc_core.ingest.offsets import Offsets

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig
    from icecdc_core.ingest.kafka import Topics


@dataclass(frozen=True)
class StreamStart:
    """Where a stream starts."""

    topics: list[str]
    start: Offsets
    latest: Offsets
    lost: list[dict[str, Any]] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=dict)

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing to read."""
        return offsets.covers(self.start, self.latest)


def find_start(topics: Topics, config: IngestConfig, logged: LoggedJob, recorded: list[Offsets]) -> StreamStart:
    """Find out where a stream starts."""
    names = topics.names()
    topic_ids = with_new_topics(logged.topic_ids, topics.ids(names))
    earliest, latest = topics.earliest(names), topics.latest(names)
    if logged.exists:
        # A partition that the log, or a table left behind, lacks was added since: it is read from its beginning.
        wanted = _with_new_partitions(logged.offsets, earliest)
        for left_behind in logged.behind.values():
            wanted = offsets.at_most(wanted, _with_new_partitions(left_behind, earliest))
    elif recorded:
        wanted = _with_new_partitions(recorded[0], earliest)
        for each in recorded[1:]:
            wanted = offsets.at_most(wanted, _with_new_partitions(each, earliest))
    else:
        wanted = _first_start(topics, names, config, earliest, latest)
    wanted = offsets.from_entries(entry for entry in offsets.each(wanted) if entry[0] in latest)
    start, lost = _checked(wanted, earliest, latest, config)
    return StreamStart(names, start, latest, lost, topic_ids)


def with_new_topics(known: dict[str, str], present: dict[str, str]) -> dict[str, str]:
    """Return the known ids of topics and the present ones. Raises TopicReplacedError if they contradict each other."""
    for name, identifier in present.items():
        if known.get(name, identifier) != identifier:
            raise _replaced_error("The topic is not the one that was read: it was deleted and made again", name)
    return {**known, **present}


def _with_new_partitions(wanted: Offsets, earliest: Offsets) -> Offsets:
    """Return an offset for every partition: the wanted one, else its beginning."""
    return offsets.from_entries(
        (topic, p, offsets.get(wanted, topic, p, first)) for topic, p, first in offsets.each(earliest)
    )


def _first_start(topics: Topics, names: list[str], config: IngestConfig, earliest: Offsets, latest: Offsets) -> Offsets:
    wanted = config.starting_offsets
    if wanted.startswith("{"):
        given = parse_offsets(wanted)
        for topic, partition, offset in offsets.each(given):
            end = latest.get(topic, {}).get(partition)
            if end is None or offset > end:
                missing = "which this job does not read" if end is None else f"which ends before offset {offset}"
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


def _checked(
    wanted: Offsets, earliest: Offsets, latest: Offsets, config: IngestConfig
) -> tuple[Offsets, list[dict[str, Any]]]:
    """Return the offsets to start at, and the records that were lost before them."""
    beyond = [e for e in offsets.each(wanted) if e[2] > offsets.get(latest, e[0], e[1])]
    if beyond:
        # No policy helps: the tables would skip the new records below this offset as written.
        topic, partition, offset = beyond[0]
        raise _replaced_error(
            f"The topic ends at offset {offsets.get(latest, topic, partition)}, before offset {offset} up to which it "
            "was read: it was deleted and made again, or lost its end",
            f"{topic}-{partition}",
        )
    gone = offsets.removed(wanted, earliest)
    if gone and config.on_lost_offsets == "fail":
        topic, partition, offset, first = gone[0]
        raise LostOffsetsError(
            f"The topic begins at offset {first}, but was read only up to offset {offset}: its retention removed "
            f"{first - offset} records before they were read ({len(gone)} partitions are affected)",
            subject="topics",
            value=f"{topic}-{partition}",
            remedy="restore the records from another source, then set on_lost_offsets=continue once; raise the topic's "
            "retention or run more often",
        )
    lost = [{"topic": t, "partition": p, "from": offset, "to": first} for t, p, offset, first in gone]
    return offsets.furthest(wanted, offsets.from_entries((t, p, first) for t, p, _, first in gone)), lost


def _replaced_error(message: str, value: str) -> TopicReplacedError:
    return TopicReplacedError(
        message,
        subject="topics",
        value=value,
        remedy="ingest this topic under a new job name; the rows of the old topic stay",
    )
