"""Which metadata hide their history, as a truth table; no Spark."""

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

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
    """A table as its catalog's client shows it; ``recorded`` snapshots are in its metadata file."""

    def __init__(self, recorded=0, is_rest=True, nessie=False, readable=True):
        def read(io, file):
            if not readable:
                raise Py4JError("no such file")
            return SimpleNamespace(snapshots=lambda: SimpleNamespace(size=lambda: recorded))

        client = "org.apache.iceberg.rest.RESTTableOperations" if is_rest else "org.apache.iceberg.hive.HiveOperations"
        properties = SimpleNamespace(containsKey=lambda name: nessie and name == "nessie.is-nessie-catalog")
        parser = SimpleNamespace(read=read)
        self.spark = SimpleNamespace(_jvm=SimpleNamespace(**{"org.apache.iceberg.TableMetadataParser": parser}))
        self.getClass = lambda: SimpleNamespace(getName=lambda: client)
        self.io = lambda: SimpleNamespace(properties=lambda: properties)
        self.current = lambda: SimpleNamespace(metadataFileLocation=lambda: "m.json")
        self.operations = lambda: self


class DescribeHiddenHistory:
    @pytest.mark.parametrize(
        ("known", "table", "reason"),
        [
            (metadata(), JavaTable(nessie=True), "Nessie's REST endpoint shows only the latest snapshot"),
            (metadata(FIRST), JavaTable(nessie=True), "Nessie's REST endpoint"),
            (metadata((7, 3, None)), JavaTable(nessie=True), "Nessie's REST endpoint"),
            (metadata((7, 3, 6), log=EARLIER), JavaTable(3), "only snapshot 7, but the table's metadata file has more"),
            (metadata((7, 3, None), log=EARLIER), JavaTable(2), "the table's metadata file has more"),
        ],
        ids=["nessie-empty", "nessie-first", "nessie", "answer", "answer-no-parent"],
    )
    def it_is_named(self, known, table, reason):
        with pytest.raises(HiddenHistoryError, match=rf"'lake\.ns\.t' hides its history: .*{reason}.*Remedy: "):
            require_visible_history(table.spark, "lake.ns.t", table, known)

    @pytest.mark.parametrize(
        ("known", "table"),
        [
            (metadata(), JavaTable()),
            (metadata(FIRST), JavaTable()),
            (metadata(FIRST, (2, 2, 1)), JavaTable(nessie=True)),
            (metadata((6, 2, 5), (7, 3, 6)), JavaTable(3)),
            (metadata((7, 3, 6), log=EARLIER), JavaTable(1)),
            (metadata((7, 3, 6), log=EARLIER), JavaTable(3, readable=False)),
            (metadata((7, 3, 6), log=EARLIER), JavaTable(3, is_rest=False)),
            (metadata((7, 3, 6), log=EARLIER), JavaTable(1, nessie=True)),
        ],
        ids=["empty", "first", "nessie-two", "two", "expired", "unreadable", "not-rest", "nessie-expired"],
    )
    def it_is_not_seen_where_there_is_none(self, known, table):
        require_visible_history(table.spark, "lake.ns.t", table, known)
