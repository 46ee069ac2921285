"""What an index of a file says wins over the defaults, whatever its spelling."""

from __future__ import annotations

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.config.index_file import with_defaults
from icecdc_core.errors import ConfigError

TEXT = {"type": "text", "analyzer": "english"}


class DescribeWithDefaults:
    @pytest.mark.parametrize(
        ("defaults", "entry", "expected"),
        [
            ({"index": {"refresh_interval": "30s"}}, {"refresh_interval": "5s"}, {"refresh_interval": "5s"}),
            ({"refresh_interval": "30s"}, {"index": {"refresh_interval": None}}, {"index": {"refresh_interval": None}}),
            (
                {"index.translog.sync_interval": "9s", "codec": "zstd"},
                {"translog": {"sync_interval": "5s"}},
                {"codec": "zstd", "translog": {"sync_interval": "5s"}},
            ),
            (
                {"index": {"translog": {"sync_interval": "9s", "flush_threshold_size": "1gb"}}},
                {"index": {"translog.sync_interval": "5s"}},
                {"index": {"translog": {"flush_threshold_size": "1gb"}, "translog.sync_interval": "5s"}},
            ),
        ],
    )
    def it_replaces_a_setting_in_another_spelling(self, defaults, entry, expected):
        assert with_defaults({"settings": defaults}, {"settings": entry}) == {"settings": expected}

    @pytest.mark.parametrize(
        ("defaults", "entry", "expected"),
        [
            ({"number_of_shards": 2}, {"settings": {"index.number_of_shards": 3}}, ({"index.number_of_shards": 3}, 1)),
            ({"settings": {"number_of_shards": 3}}, {"number_of_shards": 2}, ({}, 2)),
        ],
    )
    def it_replaces_a_parameter_by_the_setting_and_the_other_way(self, defaults, entry, expected):
        config = SyncConfig(**with_defaults(defaults, {"table": "lake.ns.t", **entry}))
        assert (config.settings, config.number_of_shards) == expected

    def it_leaves_what_one_section_says_twice(self):
        twice = {"refresh_interval": "5s", "index.refresh_interval": "5s"}
        with pytest.raises(ConfigError, match="has refresh_interval twice"):
            SyncConfig(**with_defaults({}, {"table": "lake.ns.t", "settings": twice}))

    @pytest.mark.parametrize(
        ("entry", "expected"),
        [
            ({"title": {"type": "keyword"}}, {"title": {"type": "keyword"}}),
            ({"title": {"type": "text", "boost": 2}}, {"title": {**TEXT, "boost": 2}}),
            ({"title": {"index": False}}, {"title": {**TEXT, "index": False}}),
            ({"type": {"type": "keyword"}}, {"title": TEXT, "type": {"type": "keyword"}}),
        ],
    )
    def it_merges_a_field_of_the_same_type_and_replaces_one_of_another(self, entry, expected):
        assert with_defaults({"mapping": {"title": TEXT}}, {"mapping": entry}) == {"mapping": expected}

    def it_does_so_for_fields_inside_of_others(self):
        defaults = {"place": {"properties": {"city": TEXT, "type": {"type": "long"}}}, "a": {"fields": {"b": TEXT}}}
        entry = {"place": {"properties": {"city": {"type": "keyword"}}}, "a": {"fields": {"b": {"type": "keyword"}}}}
        assert with_defaults({"mapping": defaults}, {"mapping": entry})["mapping"] == {
            "place": {"properties": {"city": {"type": "keyword"}, "type": {"type": "long"}}},
            "a": {"fields": {"b": {"type": "keyword"}}},
        }
