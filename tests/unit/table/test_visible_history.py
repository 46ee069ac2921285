"""Which metadata hide their history, as a truth table; no Spark."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.types import LongType, NestedField

from icecdc_core.errors import HiddenHistoryError
from icecdc_core.table.catalogs import CatalogView, require_visible_history

EARLIER = [{"metadata-file": "m0.json", "timestamp-ms": 1}]
PLAIN, NESSIE = frozenset({"uri"}), frozenset({"uri", "nessie.is-nessie-catalog"})
FIRST = (1, 1, None)
"""A snapshot: its id, its sequence number, its parent's id."""


def metadata(*snapshots, log=()):
    return TableMetadataV2.model_validate(
        {
            "format-version": 2,
            "table-uuid": "6f8c2a0e-3c3e-4a39-9b5c-0a6d0f6f0a11",
            "location": "file:/t",
            "last-sequence-number": max([0, *(number for _, number, _ in snapshots)]),
            "last-updated-ms": 1,
            "last-column-id": 1,
            "schemas": [Schema(NestedField(1, "id", LongType())).model_dump()],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "metadata-log": list(log),
            "current-snapshot-id": snapshots[-1][0] if snapshots else None,
            "snapshots": [
                {
                    "snapshot-id": identity,
                    "sequence-number": number,
                    "parent-snapshot-id": parent,
                    "timestamp-ms": number,
                    "manifest-list": "m",
                    "summary": {"operation": "append"},
                }
                for identity, number, parent in snapshots
            ],
        }
    )


def view(is_rest=True, names=PLAIN, recorded=()):
    return CatalogView(is_rest, names, lambda: frozenset(recorded))


class DescribeHiddenHistory:
    @pytest.mark.parametrize(
        ("table", "catalog", "reason"),
        [
            (metadata(), view(names=NESSIE), "Nessie's REST endpoint shows only the latest snapshot"),
            (metadata(FIRST), view(names=NESSIE), "Nessie's REST endpoint"),
            (metadata((7, 3, None)), view(names=NESSIE), "Nessie's REST endpoint"),
            (metadata((7, 3, None)), view(), "only snapshot 7, which has sequence number 3, .* none has expired"),
            (metadata((7, 3, None)), view(is_rest=False), "none has expired"),
            (metadata((7, 0, 6)), view(), "none has expired"),
            (metadata((7, 3, 6), log=EARLIER), view(recorded=(5, 6, 7)), "the table's metadata file has 3"),
            (metadata((7, 3, None), log=EARLIER), view(recorded=(6, 7)), "the table's metadata file has 2"),
        ],
        ids=["nessie-empty", "nessie-first", "nessie", "no-log", "no-log-not-rest", "v1", "answer", "answer-no-parent"],
    )
    def it_is_named(self, table, catalog, reason):
        with pytest.raises(HiddenHistoryError, match=rf"'lake\.ns\.t' hides its history: .*{reason}.*Remedy: "):
            require_visible_history("lake.ns.t", table, catalog)

    @pytest.mark.parametrize(
        ("table", "catalog"),
        [
            (metadata(), view()),
            (metadata(FIRST), view()),
            (metadata(FIRST, (2, 2, 1)), view()),
            (metadata(FIRST, (2, 2, 1)), view(names=NESSIE)),
            (metadata((6, 2, 5), (7, 3, 6)), view(recorded=(5, 6, 7))),
            (metadata((7, 3, 6), log=EARLIER), view(recorded=(7,))),
            (metadata((7, 3, 6), log=EARLIER), view(recorded=())),
            (metadata((7, 3, 6), log=EARLIER), view(is_rest=False, recorded=(5, 6, 7))),
            (metadata((7, 3, 6), log=EARLIER), view(is_rest=False, names=NESSIE)),
            (metadata((7, 3, 6), log=EARLIER), view(names=NESSIE, recorded=(7,))),
        ],
        ids=[
            "empty",
            "first",
            "two",
            "nessie-that-shows-more",
            "more-than-one",
            "expired",
            "unreadable",
            "not-rest",
            "native-nessie-expired",
            "nessie-with-log-expired",
        ],
    )
    def it_is_not_seen_where_there_is_none(self, table, catalog):
        require_visible_history("lake.ns.t", table, catalog)
