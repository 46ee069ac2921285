"""The proof that a history was followed: the index equals the table, each snapshot's changes its true difference."""

import itertools
from collections import Counter
from contextlib import suppress
from typing import Any
from unittest import mock

from opensearchpy import OpenSearch
from opensearchpy.helpers import scan
from pyspark.sql import SparkSession, functions as F

from icecdc_core import SyncConfig, sync_changes
from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes import read_changes
from icecdc_core.errors import HistoryGapError, SchemaChangeError, TableReplacedError
from icecdc_core.jobs import sync
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.batch import write_batch
from tests.given.broken_runs import Killed
from tests.histories.lake import Lake

REFUSALS = (HistoryGapError, SchemaChangeError, TableReplacedError)
SYNCED = "synced"


def follow(spark: SparkSession, config: SyncConfig) -> tuple[str, RunReport]:
    """Sync; if that is refused, export again as the remedy says. Returns what happened."""
    try:
        return SYNCED, sync_changes(spark, config)
    except REFUSALS as refusal:
        reexporting = config.model_copy(update={"on_history_gap": "reexport", "on_schema_change": "reexport"})
        return type(refusal).__name__, sync_changes(spark, reexporting)


def break_off(spark: SparkSession, config: SyncConfig, n: int) -> None:
    """Sync, and stop with all or a half of the documents written, as a kill does or as a rejected document does."""

    def write(run, lock, actions):  # type: ignore[no-untyped-def]
        if n % 3 and actions is not None:
            actions = actions.where(F.crc32("action") % 2 == n % 2)
        write_batch(run, lock, actions)
        if n % 4 > 1:
            lock.record(failure="a document was rejected")
        raise Killed

    with mock.patch.object(sync, "write_batch", write), suppress(Killed, *REFUSALS):
        sync_changes(spark, config)


def assert_equal(client: OpenSearch, index: str, lake: Lake) -> None:
    expected = lake.rows()
    client.indices.refresh(index=index)
    # A column that a document lacks, as one written before the column was added, is null.
    nulls = dict.fromkeys(lake.spark.table(lake.table).columns)
    actual = {hit["_id"]: {**nulls, **hit["_source"]} for hit in scan(client, index=index)}
    differing = {key for key in {*expected, *actual} if expected.get(key) != actual.get(key)}
    assert {key: (expected.get(key), actual.get(key)) for key in differing} == {}


def placed(client: OpenSearch, index: str) -> list[tuple[str, str | None, str, dict[str, Any]]]:
    """Id, routing, suffix of the index, and content of every document that readers see."""
    client.indices.refresh(index=index)
    hits = [
        (hit["_id"], hit.get("_routing"), hit["_index"].rpartition("--")[2][7:], hit["_source"])
        for hit in scan(client, index=index)
    ]
    return sorted(hits, key=lambda hit: (hit[0], hit[1] or "", hit[2]))


def without_nulls(value: Any) -> Any:
    """A document that was written before a column was added lacks its field, which is null in others."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def assert_placed(client: OpenSearch, config: SyncConfig, lake: Lake) -> None:
    """Every row has one document, in its place, and there are no others."""
    of_row = [(key, row["region"]) for key, row in lake.rows().items()]
    assert [(key, at, suffix) for key, at, suffix, _ in placed(client, config.index)] == sorted(
        (key, at if config.routing else None, at if config.index_column else "") for key, at in of_row
    )


def assert_true_changes(spark: SparkSession, lake: Lake) -> None:
    """``read_changes`` and ``remove_carryovers`` give each snapshot's difference, and that of the ends of the range."""
    known = lake.snapshots()
    if not known:
        return
    parents = dict(lake.sql("SELECT snapshot_id, parent_id FROM {t}.snapshots").collect())
    start = None if parents[known[0]] is None else known[0]
    chain = [start, *(snapshot for snapshot in known if snapshot != start)]
    states = {snapshot: lake.state(snapshot) for snapshot in chain}
    steps = itertools.pairwise(chain)
    expected = {after: difference(states[before], states[after]) for before, after in steps}
    actual: dict[int, Counter[tuple[Any, ...]]] = {snapshot: Counter() for snapshot in chain[1:]}
    for row in remove_carryovers(read_changes(spark, lake.table, start, mode="snapshot")).collect():
        actual[row["_commit_snapshot_id"]][tuple(row)[:-2]] += 1
    assert actual == expected
    net = remove_carryovers(read_changes(spark, lake.table, start)).collect()
    whole = Counter(tuple(row)[:-2] for row in net)
    assert balance(whole) == balance(difference(states[chain[0]], states[chain[-1]]))


def balance(changes: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Rows with how often they come, negative where they go: a net range cut at compactions may show a row twice."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for (*row, change_type), times in changes.items():
        sums[tuple(row)] += times if change_type == "INSERT" else -times
    return Counter({row: times for row, times in sums.items() if times})


def difference(before: Counter[tuple[Any, ...]], after: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    gone = Counter({(*row, "DELETE"): times for row, times in (before - after).items()})
    return gone + Counter({(*row, "INSERT"): times for row, times in (after - before).items()})
