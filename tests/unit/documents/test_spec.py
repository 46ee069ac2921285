"""The spec of an index: its digest, and which of its changes an index can follow in place."""

import pytest
from pyspark.sql import types as T

from icecdc_core.documents.spec import spec_changes, stored_spec

TITLE = {"title": {"type": "text", "analyzer": "english"}}
SCHEMA = T.StructType().add("title", T.StringType()).add("place", T.StructType().add("city", T.StringType()))


class DescribeSpecChanges:
    @pytest.mark.parametrize(
        ("was", "now", "new_columns", "expected"),
        [
            (({}, {}), ({}, {"default_pipeline": "p"}), (), [("settings.default_pipeline", False)]),
            (({}, {}), ({}, {"number_of_shards": 3}), (), [("settings.number_of_shards", False)]),
            ((TITLE, {}), ({"title": {**TITLE["title"], "fields": {"raw": {"type": "keyword"}}}}, {}), (),
                [("mapping.title.raw.type", False)]),
            ((TITLE, {}), ({**TITLE, "added": {"type": "keyword"}}, {}), ("added",), [("mapping.added.type", True)]),
            (({}, {}), ({"a": {"properties": {"meta": {"fields": {"raw": {"type": "keyword"}}}}}}, {}), (),
                [("mapping.a.meta.raw.type", False)]),
            (({}, {}), ({"a.meta": {"copy_to": "all"}}, {}), (), [("mapping.a.meta.copy_to", False)]),
            (({}, {}), ({"a": {"meta": {"unit": "m"}}}, {}), (), [("mapping.a.meta.unit", True)]),
            (({}, {}), ({"a": {"fields": {"en": {"search_analyzer": "simple"}}}}, {}), (),
                [("mapping.a.en.search_analyzer", True)]),
        ],
    )  # fmt: skip
    def it_knows_which_leave_documents_right(self, was, now, new_columns, expected):
        changes = spec_changes(stored_spec(*was), stored_spec(*now), new_columns)
        assert [(change.partition(" was ")[0], in_place) for change, in_place in changes.items()] == expected

    def it_adds_the_mapping_of_a_new_field_inside_an_object(self):
        text, keyword = {"type": "text", "fields": {"raw": {"type": "keyword"}}}, {"type": "keyword"}
        new = ({"place.zip": keyword}, {"place.zip": text}, {"a.b": keyword})
        for now in (*new, {"place.zipped": keyword}, {"place.city": keyword}):
            changes = spec_changes(stored_spec({}, {}), stored_spec(now, {}), {"place.zip", "a.b"}, SCHEMA)
            assert {*changes.values()} == {now in new}

    def it_compares_the_shards_of_the_settings_with_those_of_the_parameter(self):
        stored, current = stored_spec({}, {"number_of_shards": 3}), stored_spec({}, {"codec": "default"})
        for shards, expected in ((3, []), (2, ['settings.number_of_shards was "3", is "2"'])):
            changes = spec_changes(stored, current, number_of_shards=shards)
            assert [change for change in changes if "shards" in change] == expected
