"""Offsets: topic to partition to the next offset; everything below it is done. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

Offsets = dict[str, dict[int, int]]
"""Topic to partition to the next offset."""


def parse(text: str | None) -> Offsets:
    """Offsets from JSON as `text` writes them; none from nothing."""
    found = json.loads(text) if text else {}
    return {topic: {int(number): int(offset) for number, offset in parts.items()} for topic, parts in found.items()}


def text(offsets: Offsets) -> str:
    """Offsets as JSON, the same text for the same offsets; it is what Spark takes too."""
    ordered = {topic: {str(p): parts[p] for p in sorted(parts)} for topic, parts in sorted(offsets.items())}
    return json.dumps(ordered, separators=(",", ":"))


def each(offsets: Offsets) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and offset of each partition."""
    for topic, parts in offsets.items():
        for partition, offset in parts.items():
            yield topic, partition, offset


def of(entries: Iterable[tuple[str, int, int]]) -> Offsets:
    """Offsets from topic, partition and offset of each partition."""
    found: Offsets = {}
    for topic, partition, offset in entries:
        found.setdefault(topic, {})[partition] = offset
    return found


def get(offsets: Mapping[str, Mapping[int, int]], topic: str, partition: int, default: int = 0) -> int:
    """The offset of a partition; the default where there is none."""
    return offsets.get(topic, {}).get(partition, default)


def furthest(first: Offsets, *others: Offsets) -> Offsets:
    """For each partition that any has, the highest offset."""
    found = {topic: dict(parts) for topic, parts in first.items()}
    for other in others:
        for topic, partition, offset in each(other):
            parts = found.setdefault(topic, {})
            parts[partition] = max(offset, parts.get(partition, offset))
    return found


def at_most(offsets: Offsets, limit: Offsets) -> Offsets:
    """The offsets, lowered to those of the limit in partitions that it has."""
    return of((t, p, min(offset, get(limit, t, p, offset))) for t, p, offset in each(offsets))


def covers(offsets: Offsets, other: Offsets) -> bool:
    """Whether everything below the other offsets is below these."""
    return all(get(offsets, topic, partition) >= offset for topic, partition, offset in each(other))


def count(start: Offsets, end: Offsets) -> int:
    """Offsets from start to end: records, and the marks of transactions between them."""
    return sum(max(0, offset - get(start, topic, partition)) for topic, partition, offset in each(end))


def unread(recorded: Offsets, start: Offsets) -> Column | None:
    """Which records of a batch are not below the recorded offsets; None where no record can be.

    Args:
        recorded: What a table has.
        start: Where the batch starts.
    """
    condition: Column | None = None
    for topic, partition, offset in each(recorded):
        if topic in start and offset > get(start, topic, partition):
            done = (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") < offset)
            condition = ~done if condition is None else condition & ~done
    return condition


def behind(recorded: Offsets, earliest: Offsets) -> list[tuple[str, int, int, int]]:
    """Partitions whose next record is gone: topic, partition, the offset wanted, the earliest there is."""
    return [
        (topic, partition, offset, get(earliest, topic, partition))
        for topic, partition, offset in each(recorded)
        if offset < get(earliest, topic, partition, offset)
    ]
