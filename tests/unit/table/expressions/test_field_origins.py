"""The columns of each field, from selections in the form in which Spark shows its plans."""

from __future__ import annotations

import pytest

from icecdc_core.table.select import FieldOrigin, field_origins

COLUMNS = {"1": "id", "2": "name"}


CHILDREN = {"AttributeReference": 0, "Literal": 0, "Concat": 2, "Sha2": 2, "EqualTo": 2, "CaseWhen": 2}


def node(kind, key="", name=""):
    name_of_class = f"org.apache.spark.sql.catalyst.expressions.{kind}"
    return {"class": name_of_class, "num-children": CHILDREN.get(kind, 1), "exprId": {"id": key}, "name": name}


def column(key):
    return node("AttributeReference", key, COLUMNS.get(key, ""))


def named(key, name, *nodes):
    return [node("Alias", key, name), *nodes]


BOTH = (column("1"), column("2"))
HASH = (node("Sha2"), column("2"), node("Literal"))


class DescribeFieldOrigins:
    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ([[column("1")]], {"id": FieldOrigin(frozenset({"id"}), is_identity=True)}),
            ([named("7", "n", column("1"))], {"n": FieldOrigin(frozenset({"id"}), is_identity=True)}),
            ([named("7", "n", node("Cast"), column("1"))], {"n": FieldOrigin(frozenset({"id"}))}),
            (
                [named("7", "n", node("Concat"), column("1"), column("2"))],
                {"n": FieldOrigin(frozenset({"id", "name"}))},
            ),
            ([named("7", "n", *HASH)], {"n": FieldOrigin(frozenset({"name"}), is_masked=True)}),
            (
                [named("7", "n", node("Concat"), *HASH, *HASH)],
                {"n": FieldOrigin(frozenset({"name"}), is_masked=True)},
            ),
            ([named("7", "n", node("Concat"), *HASH, column("2"))], {"n": FieldOrigin(frozenset({"name"}))}),
            (
                [named("7", "n", node("CaseWhen"), node("EqualTo"), *HASH, node("Literal"), column("2"))],
                {"n": FieldOrigin(frozenset({"name"}))},
            ),
            ([named("7", "n", node("Literal"))], {"n": FieldOrigin(frozenset())}),
        ],
        ids=[
            *("a column", "renamed", "cast", "computed of two", "a hash"),
            *("two hashes", "a hash and the value", "the value for one hash", "a constant"),
        ],
    )
    def it_names_the_columns(self, fields, expected):
        assert field_origins([fields], COLUMNS) == expected

    def it_follows_selections_of_selections(self):
        inner = [named("7", "hidden", node("Md5"), column("2")), [column("1")]]
        outer = [named("8", "label", node("Upper"), node("AttributeReference", "7", "hidden")), [column("1")]]
        assert field_origins([outer, inner], COLUMNS) == {
            "label": FieldOrigin(frozenset({"name"}), is_masked=True),
            "id": FieldOrigin(frozenset({"id"}), is_identity=True),
        }

    def it_is_the_columns_without_a_selection(self):
        assert field_origins([], COLUMNS) == {
            name: FieldOrigin(frozenset({name}), is_identity=True) for name in ("id", "name")
        }
