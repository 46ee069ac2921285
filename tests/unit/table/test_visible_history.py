"""Which metadata hide their history, as a truth table; no Spark."""

from contextlib import nullcontext
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


NESSIE, MORE = "Nessie's REST endpoint shows only the latest snapshot", "the table's metadata file has more"
EXPIRED = metadata((7, 3, 6), log=EARLIER)


@pytest.mark.parametrize(
    ("known", "table", "reason"),
    [
        (metadata(), JavaTable(nessie=True), NESSIE), (metadata(FIRST), JavaTable(nessie=True), NESSIE),
        (metadata((7, 3, None)), JavaTable(nessie=True), NESSIE),
        # Nessie shows more than one, or what is left of more.
        (metadata(FIRST, (2, 2, 1)), JavaTable(nessie=True), ""), (EXPIRED, JavaTable(1, nessie=True), ""),
        # The answer has fewer than the metadata file.
        (EXPIRED, JavaTable(3), f"only snapshot 7, but {MORE}"),
        (metadata((7, 3, None), log=EARLIER), JavaTable(2), MORE), (metadata((6, 2, 5), (7, 3, 6)), JavaTable(3), ""),
        (EXPIRED, JavaTable(1), ""), (EXPIRED, JavaTable(3, readable=False), ""),
        (EXPIRED, JavaTable(3, is_rest=False), ""), (metadata(), JavaTable(), ""), (metadata(FIRST), JavaTable(), ""),
    ],
)  # fmt: skip
def it_names_a_history_that_is_hidden(known, table, reason):
    words = rf"'lake\.ns\.t' hides its history: .*{reason}.*Remedy: "
    with pytest.raises(HiddenHistoryError, match=words) if reason else nullcontext():
        require_visible_history(table.spark, "lake.ns.t", table, known)
