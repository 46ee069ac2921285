"""Every operation and history on every kind of table, and the documentation's page that says how they end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from icecdc_core import export_table
from tests.histories.lake import HISTORIES, KINDS, OPERATIONS, SAMPLE, Lake
from tests.histories.proof import SYNCED, assert_equal, assert_true_changes, follow

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
# What may be refused by default, and why; everywhere else the sync must follow.
REFUSED = {
    "position expired": {"HistoryGapError"},
    "DROP and re-create": {"TableReplacedError"},
}
_outcomes: dict[str, dict[str, str]] = {}


# SUITE=histories sets the number of random histories and with it goes through everything on all kinds. Otherwise each
# kind of the sample goes through its share, so that together they go through everything.
EVERY = "ICECDC_HISTORIES" in os.environ
RUN = [kind for kind in KINDS if EVERY or kind.name in SAMPLE]


@pytest.fixture(params=RUN, ids=lambda kind: kind.name)
def lake(request, spark, warehouse, name):
    lake = Lake(spark, warehouse, name, request.param)
    yield lake
    lake.drop()


class DescribeEveryKindOfTable:
    @pytest.mark.timeout(900)
    def it_is_followed_through_everything_that_can_happen_to_it(self, lake, spark, make_config, opensearch):
        config = make_config()
        outcomes = _outcomes.setdefault(lake.kind.name, {})
        export_table(spark, config)
        for n, operation, change in _share(OPERATIONS, lake.kind):
            lake.append(n)
            change(lake, n)
            outcomes[operation], _ = follow(spark, config)
            assert_equal(opensearch, config.index, lake)
        assert_true_changes(spark, lake)
        for n, history, change in _share(_histories(), lake.kind):
            change(lake, n)
            outcomes[history], _ = follow(spark, config)
            assert_equal(opensearch, config.index, lake)
        unexpected = {
            what: how for what, how in outcomes.items() if how != SYNCED and how not in REFUSED.get(what, set())
        }
        assert unexpected == {}


class DescribeTheSupportMatrix:
    def it_says_what_was_found(self):
        if len(_outcomes) == len(KINDS) and os.environ.get("ICECDC_UPDATE_DOCS"):
            PAGE.write_text(_page(), encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8").partition("## Versions")[0].splitlines()
        found = {(kind, what, how) for kind, outcomes in _outcomes.items() for what, how in outcomes.items()}
        assert (bool(_outcomes), found - _cells(page)) == (True, set())
        lines = {line for rows in (OPERATIONS, _histories()) for line in _table(_outcomes, rows)} if EVERY else set()
        assert lines - set(page) == set()


def _share(changes, kind):
    """What a kind goes through, numbered."""
    numbered = [(n, what, change) for n, (what, change) in enumerate(changes.items(), 1)]
    return numbered if EVERY else numbered[RUN.index(kind) :: len(RUN)]


def _cells(page):
    """The cells of the page's tables: kind of table, what happens to it, and how that ends."""
    cells, heads = set(), []
    for kind, *values in (line.strip("| ").split(" | ") for line in page if line.startswith("| ")):
        if kind == "kind of table":
            heads = values
        else:
            cells |= {(kind, head, value) for head, value in zip(heads, values, strict=True)}
    return cells


def _histories():
    """Histories with changes of rows before and after them, all in the range of one sync."""

    def within(change):
        def run(lake, n):
            lake.append(n)
            lake.update(n)
            change(lake, n)
            lake.delete(n)
            lake.append(n)

        return run

    def before_the_range(lake, n):
        lake.expire(n)
        lake.update(n)

    found = {}
    for history, change in HISTORIES.items():
        if history == "snapshots expired":
            found["snapshots before the position expired"] = before_the_range
            found["position expired"] = within(change)
        else:
            found[history] = within(change)
    return found


def _page() -> str:
    """The page, from what was found."""
    lines = [
        "# Supported operations and histories",
        "",
        "The tests in `tests/histories` generate this page and compare it with their results whenever they run.",
        "For every cell they compare the documents of the index with the rows of the table, one by one. For",
        "operations they also compare the changes of every snapshot with the difference of its two states, which",
        "PyIceberg reads in full (Spark's time travel for Avro and equality deletes, which PyIceberg cannot",
        "read).",
        "",
        "- *synced*: `sync_changes` followed the change, with default parameters.",
        "- The name of an error: sync refused before it wrote anything. A re-export behind the alias",
        "  (`on_history_gap=reexport`) brought the index in sync.",
        "",
        "## Operations",
        "",
        "Each runs in the range of one sync, together with an append.",
        "",
        *_table(_outcomes, OPERATIONS),
        "",
        "## Histories",
        "",
        "Each runs after an append and an UPDATE, before a DELETE and an append, all in the range of one sync.",
        "",
        *_table(_outcomes, _histories()),
        "",
        "`make test SUITE=histories` runs 500 random sequences of all of these.",
        "",
    ]
    # The sections after the tables are written by hand.
    written, heading, rest = PAGE.read_text(encoding="utf-8").partition("## Versions")
    return "\n".join([*lines, heading + rest]) if written else "\n".join(lines)


def _table(outcomes, rows):
    shown = list(rows)
    yield f"| kind of table | {' | '.join(shown)} |"
    yield "|---" * (len(shown) + 1) + "|"
    for name, found in outcomes.items():
        yield f"| {name} | {' | '.join(found[what] for what in shown)} |"
