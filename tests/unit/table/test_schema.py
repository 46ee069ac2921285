"""Two Iceberg schemas, matched by field id: what changed, and whether an index can follow in place."""

import json

import pytest

from icecdc_core.table.schema import schema_change


def field(key, name, kind="long", required=False, **more):
    return {"id": key, "name": name, "required": required, "type": kind, **more}


def schema(*fields):
    return json.dumps({"type": "struct", "schema-id": 0, "identifier-field-ids": [], "fields": list(fields)})


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


A, B = field(1, "a"), field(2, "b")


@pytest.mark.parametrize(
    ("old", "new", "expected", "additive"),
    [
        ([A, B], [A, B], [], True),
        ([A], [A, B], ["column 'b' was added"], True),
        ([A], [A, field(2, "b", **{"initial-default": 5})],
            ["column 'b' was added with the default 5 for old rows"], False),
        ([A], [A, field(2, "b", **{"write-default": 5})], ["column 'b' was added"], True),
        ([A, B], [A], ["column 'b' was dropped"], False),
        ([A, B], [A, field(2, "c")], ["column 'b' was renamed to 'c'"], False),
        ([A, B], [A, field(3, "b")], ["column 'b' was dropped and another column took its name",
            "column 'b' was added"], False),
        ([A, B], [field(1, "b"), field(2, "a")], ["column 'a' was renamed to 'b'", "column 'b' was renamed to 'a'"],
            False),
        ([A], [field(1, "A")], ["column 'a' was renamed to 'A'"], False),
        ([A, B], [B, A], ["column 'a' was moved", "column 'b' was moved"], True),
        ([A, B], [A, field(3, "c"), B], ["column 'c' was added"], True),
        ([field(1, "a", "int")], [A], ["column 'a' was widened from int to long"], False),
        ([field(1, "a", "float")], [field(1, "a", "double")], ["column 'a' was widened from float to double"],
            False),
        ([field(1, "a", "decimal(9, 2)")], [field(1, "a", "decimal(12,2)")],
            ["column 'a' was widened from decimal(9,2) to decimal(12,2)"], True),
        ([field(1, "a", "decimal(9,2)")], [field(1, "a", "decimal(9,3)")],
            ["column 'a' changed from decimal(9,2) to decimal(9,3)"], False),
        ([A], [field(1, "a", "string")], ["column 'a' changed from long to string"], False),
        ([field(1, "a", required=True)], [A], [], True),
        ([A], [field(1, "a", doc="words")], [], True),
        ([field(1, "s", struct(field(2, "x")))], [field(1, "s", struct(field(2, "x"), field(3, "y")))],
            ["column 's.y' was added"], True),
        ([field(1, "s", struct(field(2, "x")))], [field(1, "s", struct(field(2, "z")))],
            ["column 's.x' was renamed to 'z'"], False),
        ([A, field(2, "s", struct(field(3, "x")))], [A], ["column 's' was dropped"], False),
        ([A], [A, field(2, "s", struct(field(3, "x")))], ["column 's' was added"], True),
        ([field(1, "s", struct(field(2, "x")))], [field(1, "t", struct(field(2, "x")))],
            ["column 's' was renamed to 't'"], False),
    ],
)  # fmt: skip
def it_says_what_changed_and_whether_an_index_can_follow(old, new, expected, additive):
    changes = schema_change(schema(*old), schema(*new))
    assert [str(change) for change in changes] == expected
    assert all(change.additive for change in changes) is additive
