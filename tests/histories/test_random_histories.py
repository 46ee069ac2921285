"""Random histories over every kind of table, synced after random stretches: the index equals the table every time.

``ICECDC_HISTORIES`` says how many (a sample by default), ``ICECDC_SEED`` which; a failure prints its history.
"""

import os
from unittest import mock

import pytest
from hypothesis import strategies as st

from icecdc_core import export_table, validate_table
from icecdc_core.changes import net_changes
from icecdc_core.errors import DuplicateIdentifierError
from tests.checks.examples import SEED, for_examples
from tests.histories.lake import HISTORIES, KINDS, OPERATIONS, Lake
from tests.histories.proof import SYNCED, assert_equal, assert_placed, assert_true_changes, break_off, follow

MANY = int(os.environ.get("ICECDC_HISTORIES", "1"))
# What a refusal must be due to: something in the stretch, or what it did to the history of the index.
EXCUSES = {
    "HistoryGapError": {"snapshots expired"},
    "TableReplacedError": {"DROP and re-create"},
    "SchemaChangeError": {"CREATE OR REPLACE"},
}
SYNC, BROKEN_SYNC, MOVE = "sync", "sync that breaks off", "UPDATE of the partition column"
MEND = "DELETE of repeated rows"
IDENTIFIERS = {"INSERT of known identifiers": Lake.repeat_identifiers, MEND: Lake.mend_identifiers}
ROUTED, SUFFIXED = {"routing": "region", "number_of_shards": 3}, {"index_column": "region"}
SPREAD = {**ROUTED, "settings": {"routing_partition_size": 2}}  # over several shards
REPEATED = [{"change_mode": mode, **place} for mode in ("net", "snapshot") for place in ({}, ROUTED, SUFFIXED)]
# Rows come and go more often than histories are rewritten.
CHANGES = {**OPERATIONS, **HISTORIES, **IDENTIFIERS}
STEPS = [st.sampled_from(sorted(each)) for each in (OPERATIONS, OPERATIONS, HISTORIES, [SYNC])]
# By default no table as small as these is read by row ids, and most that compare values are joined.
LIMITS = {name: getattr(net_changes, name) for name in ("ROW_IDS_FROM_ROWS", "JOINED_ROWS")}


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize(
    "places",
    [pytest.param([{}], marks=pytest.mark.long), [SPREAD, SUFFIXED, {**ROUTED, **SUFFIXED}], REPEATED],
    ids=["plain", "places change", "identifiers repeat"],
)
def it_follows_every_history(spark, warehouse, opensearch, make_config, name, places):
    more = [] if places == [{}] else [BROKEN_SYNC, *(IDENTIFIERS if places == REPEATED else [MOVE])]
    steps = st.one_of([*STEPS, *([st.sampled_from(more)] if more else [])])
    lived = []

    def live(kind, limits, history, parameters):
        lived.append(kind.name)
        print(f"{len(lived)}: {kind.name}, {limits}: {', '.join(step for step, _ in history)}", parameters, flush=True)
        table = f"{name}_{len(lived)}"
        own = {"table": f"lake.ns.{table}", "index": table, "positions_index": f"positions-{table}"}
        config = make_config(**own, **parameters)
        lake = Lake(spark, warehouse, table, kind)
        try:
            with mock.patch.multiple(net_changes, **limits):
                _live(spark, opensearch, config, lake, [*history, (MEND, 0)] if places == REPEATED else history)
        finally:
            lake.drop()
            opensearch.indices.delete(index=f"{table}--*,positions-{table}", ignore_unavailable=True)

    # A history takes seconds to live, so a failing one is shown as it is.
    for_examples(
        live,
        MANY,
        kind=st.sampled_from(KINDS),
        limits=st.fixed_dictionaries({name: st.sampled_from([0, limit]) for name, limit in LIMITS.items()}),
        history=st.lists(st.tuples(steps, st.integers(0, 20)), min_size=3, max_size=12 if MANY > 1 else 4),
        parameters=st.sampled_from(places),
    )
    print(f"{len(lived)} histories, seed {SEED}")
    assert len(lived) >= min(MANY, 1)


def _live(spark, opensearch, config, lake, history):
    lake.append(0)
    export_table(spark, config)
    stretch = set()
    for step, n in [*history, (SYNC, 0)]:
        if step == BROKEN_SYNC:
            break_off(spark, config, n)
            continue
        if step != SYNC:
            CHANGES[step](lake, n)
            stretch.add(step)
            continue
        try:
            outcome, report = follow(spark, config)
        except DuplicateIdentifierError:
            assert IDENTIFIERS.keys() & stretch, stretch
            if not lake.is_unique():
                continue
            outcome, report = follow(spark, config)
        assert outcome == SYNCED or EXCUSES[outcome] & stretch, (outcome, stretch)
        assert lake.is_unique(), "rows with one identifier were not seen"
        assert not report.drifted, "no other program wrote to the index"
        assert_equal(opensearch, config.index, lake)
        if config.routing or config.index_column:
            assert_placed(opensearch, config, lake)
        stretch.clear()
    if config.routing or config.index_column:
        assert validate_table(spark, config).ok
    else:
        assert_true_changes(spark, lake)
