"""Arithmetic of Kafka offsets: topic to partition to the next offset to read. Pure."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping

from pyspark.sql import Column, functions as F

Offsets = dict[str, dict[int, int]]
"""Topic to partition to the next offset. All records below it are done.

Those of a table are of the topics that are routed to it: it has all of their records below them and none above, so that
what they lack of such a topic is read from its beginning.
"""

Routed = Callable[[str, Offsets], Offsets]
"""Gets a table and offsets, and returns those of the topics that are routed to it."""


def of_all_topics(_: str, offsets: Offsets) -> Offsets:
    return offsets


def from_json(text: str | None) -> Offsets:
    parsed = json.loads(text) if text else {}
    return {topic: {int(number): int(offset) for number, offset in parts.items()} for topic, parts in parsed.items()}


def to_json(offsets: Offsets) -> str:
    """Return offsets as JSON, in the form that Spark reads; equal offsets give equal texts."""
    ordered = {topic: {str(p): parts[p] for p in sorted(parts)} for topic, parts in sorted(offsets.items())}
    return json.dumps(ordered, separators=(",", ":"))


def each(offsets: Offsets) -> Iterator[tuple[str, int, int]]:
    return ((topic, partition, offset) for topic, parts in offsets.items() for partition, offset in parts.items())


def from_entries(entries: Iterable[tuple[str, int, int]]) -> Offsets:
    collected: Offsets = {}
    for topic, partition, offset in entries:
        collected.setdefault(topic, {})[partition] = offset
    return collected


def get(offsets: Mapping[str, Mapping[int, int]], topic: str, partition: int, default: int = 0) -> int:
    return offsets.get(topic, {}).get(partition, default)


def furthest(first: Offsets, *others: Offsets) -> Offsets:
    highest = {topic: dict(parts) for topic, parts in first.items()}
    for other in others:
        for topic, partition, offset in each(other):
            parts = highest.setdefault(topic, {})
            parts[partition] = max(offset, parts.get(partition, offset))
    return highest


def at_most(offsets: Offsets, limit: Offsets) -> Offsets:
    """Return the offsets, lowered to those of the limit in partitions that the limit has."""
    return from_entries((t, p, min(offset, get(limit, t, p, offset))) for t, p, offset in each(offsets))


def covers(offsets: Offsets, other: Offsets) -> bool:
    return all(get(offsets, topic, partition) >= offset for topic, partition, offset in each(other))


def count(start: Offsets, end: Offsets) -> int:
    """Return how many records and transaction markers are between start and end."""
    return sum(max(0, offset - get(start, topic, partition)) for topic, partition, offset in each(end))


def unread(recorded: Offsets, start: Offsets, end: Offsets) -> Column | None:
    """Return a condition for the records of a batch that a table lacks; None if it has none of them."""
    done = from_entries((t, p, at) for t, p, at in each(recorded) if get(start, t, p) < min(at, get(end, t, p)))
    if not done:
        return None
    return ~is_below(done)


def is_below(reached: Offsets) -> Column:
    """Return a condition for the records below these offsets."""
    # Looked up in a constant: a condition for each partition would be deeper than Java's stack.
    numbers = {topic: range(max(parts, default=-1) + 1) for topic, parts in reached.items()}
    by_number = {topic: [reached[topic].get(number, 0) for number in each] for topic, each in numbers.items()}
    constant = F.from_json(F.lit(json.dumps(by_number)), "map<string,array<bigint>>")
    offset = F.get(F.try_element_at(constant, F.col("topic")), F.col("partition"))
    return F.col("offset") < F.coalesce(offset, F.lit(0))


def removed(recorded: Offsets, earliest: Offsets) -> list[tuple[str, int, int, int]]:
    return [
        (topic, partition, offset, get(earliest, topic, partition))
        for topic, partition, offset in each(recorded)
        if offset < get(earliest, topic, partition, offset)
    ]
