"""Every operation and history on every kind of table; docs/guarantees.md says how they end."""

import os

import pytest

from icecdc_core import export_table
from tests.histories.lake import HISTORIES, KINDS, OPERATIONS, SAMPLE, Lake
from tests.histories.proof import SYNCED, assert_equal, assert_true_changes, follow

# What may be refused by default, and why; everywhere else the sync must follow.
REFUSED = {"position expired": {"HistoryGapError"}, "DROP and re-create": {"TableReplacedError"}}
# In one range, these undo what others did.
HIDES_OTHERS = {*REFUSED, "DELETE of a partition", "TRUNCATE", "rollback", "set_current_snapshot", "CREATE OR REPLACE"}

# SUITE=histories sets the number of random histories and with it goes through everything on all kinds. Otherwise each
# kind of the sample goes through its share, so that together they go through everything.
EVERY = "ICECDC_HISTORIES" in os.environ
RUN = [kind for kind in KINDS if EVERY or kind.name in SAMPLE]
IN_RANGE = {history.replace("snapshots", "position"): change for history, change in HISTORIES.items()}


def _expire_before_the_range(lake, n):
    lake.expire(n)
    lake.update(n)


AFTER_EXPORT = {**IN_RANGE, "snapshots before the position expired": _expire_before_the_range}


@pytest.fixture(params=RUN, ids=lambda kind: kind.name)
def lake(request, spark, warehouse, name):
    lake = Lake(spark, warehouse, name, request.param)
    yield lake
    lake.drop()


@pytest.mark.timeout(900)
def it_follows_a_table_through_everything_that_can_happen_to_it(lake, spark, make_config, opensearch):
    config = make_config()
    outcomes: dict[str, str] = {}
    export_table(spark, config)
    for changes in (OPERATIONS, AFTER_EXPORT):
        for together in _ranges(_share(changes, lake.kind)):
            # Rows change before and after what happens to the history, all in the range of one sync.
            first, what, _ = together[0]
            if what in OPERATIONS or what in IN_RANGE:
                lake.append(first)
            if what in IN_RANGE:
                lake.update(first)
            for n, _, change in together:
                change(lake, n)
            if what in IN_RANGE:
                lake.delete(first)
                lake.append(first)
            outcomes[", ".join(what for _, what, _ in together)], _ = follow(spark, config)
            assert_equal(opensearch, config.index, lake)
        if changes is OPERATIONS:
            assert_true_changes(spark, lake)
    unexpected = {what: how for what, how in outcomes.items() if how != SYNCED and how not in REFUSED.get(what, set())}
    assert unexpected == {}


def _share(changes, kind):
    """What a kind goes through, numbered."""
    numbered = [(n, what, change) for n, (what, change) in enumerate(changes.items(), 1)]
    return numbered if EVERY else numbered[RUN.index(kind) :: len(RUN)]


def _ranges(numbered):
    """What is in the range of one sync: one change, or about two where a run goes through a share of them."""
    alone = [[each] for each in numbered if EVERY or "expired" in each[1] or each[1] in HIDES_OTHERS]
    others = [each for each in numbered if [each] not in alone]
    return [*filter(None, (others[::2], others[1::2])), *alone]
