"""A compaction that fails leaves the table as it is and ends nothing; without Spark and Iceberg."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from icecdc_core.errors import TableNotFoundError
from icecdc_core.ingest import table as compaction
from icecdc_core.ingest.table import compact


class Action:
    """Rewrites one file of a table; an exception in place of the table is raised."""

    def __init__(self, table):
        self.table = table

    def option(self, key, value):
        return self

    def execute(self):
        if isinstance(self.table, Exception):
            raise self.table
        return SimpleNamespace(rewrittenDataFilesCount=lambda: 1)


@pytest.mark.parametrize("error", [TableNotFoundError("dropped"), Py4JError("another writer was first")])
def it_leaves_out_a_table_that_cannot_be_compacted(monkeypatch, error):
    actions = SimpleNamespace(get=lambda session: SimpleNamespace(rewriteDataFiles=Action))
    monkeypatch.setattr(compaction, "iceberg_class", lambda *given: actions)
    monkeypatch.setattr(compaction, "load_table", lambda spark, name: error if name == "failing" else name)
    assert compact(SimpleNamespace(_jsparkSession=None), ["failing", "good"], 2) == ["good"]
