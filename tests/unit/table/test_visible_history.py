"""Which metadata hide their history, as a truth table; no Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from icecdc_core.errors import HiddenHistoryError
from icecdc_core.table.catalogs import require_visible_history
from tests.table_metadata import metadata_of

EARLIER = [{"metadata-file": "m0.json", "timestamp-ms": 1}]
FIRST = (1, 1, None)
"""A snapshot: its id, its sequence number, its parent's id."""


def metadata(*snapshots, log=()):
    made = [(identity, parent, "append", number, {}) for identity, number, parent in snapshots]
    branches = {"main": snapshots[-1][0]} if snapshots else {}
    return metadata_of(made, branches, log=log, first_number=snapshots[0][1] if snapshots else 1)


class JavaTable:
    """A table as its catalog's client shows it."""

    def __init__(self, is_rest=True, nessie=False):
        client = "org.apache.iceberg.rest.RESTTableOperations" if is_rest else "org.apache.iceberg.hive.HiveOperations"
        properties = SimpleNamespace(containsKey=lambda name: nessie and name == "nessie.is-nessie-catalog")
        self.getClass = lambda: SimpleNamespace(getName=lambda: client)
        self.io = lambda: SimpleNamespace(properties=lambda: properties)
        self.operations = lambda: self


class DescribeHiddenHistory:
    @pytest.mark.parametrize("known", [metadata(), metadata(FIRST), metadata((7, 3, None))])
    def it_is_that_of_nessie_as_a_rest_catalog(self, known):
        with pytest.raises(HiddenHistoryError, match=r"'lake\.ns\.t' hides its history: Nessie's REST endpoint"):
            require_visible_history("lake.ns.t", JavaTable(nessie=True), known)

    @pytest.mark.parametrize(
        ("known", "table"),
        [
            (metadata(), JavaTable()),
            (metadata(FIRST), JavaTable(is_rest=False, nessie=True)),
            (metadata(FIRST, (2, 2, 1)), JavaTable(nessie=True)),
            (metadata((7, 3, 6), log=EARLIER), JavaTable(nessie=True)),
        ],
        ids=["rest", "not-rest", "nessie-two", "nessie-with-a-log"],
    )
    def it_is_not_seen_where_there_is_none(self, known, table):
        require_visible_history("lake.ns.t", table, known)
