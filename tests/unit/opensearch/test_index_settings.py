"""The user's settings win over ours, except those that would break a sync or a validation."""

from types import SimpleNamespace

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.config.values import iterate_leaves
from icecdc_core.errors import ConfigError
from icecdc_core.opensearch.index_settings import (
    check_settings,
    given_settings,
    new_index_settings,
    published_settings,
    vector_settings,
)

OURS = {"number_of_shards": 3, "number_of_replicas": 2, "gc_deletes": "1h", "translog.durability": "request"}


def config(**settings):
    """Parameters with these settings; what they set is not given as a parameter, too."""
    given = {path.rpartition(".")[2] for path, _ in iterate_leaves(settings)}
    ours = {"number_of_shards": 3, "number_of_replicas": 2}
    return SyncConfig(
        table="lake.ns.t", settings=settings, **{name: value for name, value in ours.items() if name not in given}
    )


class DescribeGivenSettings:
    @pytest.mark.parametrize(
        "settings",
        [
            {"translog.sync_interval": "5s"},
            {"index.translog.sync_interval": "5s"},
            {"index": {"translog": {"sync_interval": "5s"}}},
            {"index": {"translog.sync_interval": "5s"}},
            {"translog": {"sync_interval": "5s"}, "refresh_interval": None},
        ],
    )
    def it_reads_every_spelling(self, settings):
        assert given_settings(settings) == {"translog.sync_interval": "5s"}


class DescribeCheckSettings:
    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            ({"gc_deletes": "59m"}, "could bring back a document"),
            ({"index.gc_deletes": "3599s"}, "could bring back a document"),
            ({"gc_deletes": "60000ms"}, "could bring back a document"),
            ({"gc_deletes": "soon"}, "could bring back a document"),
            ({"translog": {"durability": "ASYNC"}}, "lose documents"),
            ({"derived_source.enabled": True}, "_source"),
            ({"knn.derived_source.enabled": "true"}, "vectors in `_source`"),
        ],
    )
    def it_says_why_a_setting_is_refused(self, settings, reason):
        with pytest.raises(ConfigError, match=reason) as raised:
            check_settings(settings)
        assert (raised.value.subject, bool(raised.value.remedy)) == ("settings", True)

    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"gc_deletes": "1h"},
            {"gc_deletes": "60m"},
            {"gc_deletes": "3600000ms"},
            {"translog.durability": "request"},
            {"blocks.write": False},
            {"sort": {"field": ["day"], "order": ["desc"]}},
            {"analysis": {"analyzer": {"names": {"type": "custom", "tokenizer": "standard"}}}},
        ],
    )
    def it_accepts_the_others(self, settings):
        check_settings(settings)


class DescribeNewIndexSettings:
    def it_loads_without_replicas_and_refreshes(self):
        found = new_index_settings(config(refresh_interval="5s", auto_expand_replicas="0-1"), {}, True)
        assert found == {**OURS, "number_of_replicas": 0, "refresh_interval": "-1"}

    def it_takes_the_settings_of_the_user_over_ours(self):
        given = {"index": {"number_of_shards": 5, "gc_deletes": "2h"}, "mapping.total_fields.limit": 9, "codec": "zstd"}
        found = new_index_settings(config(**given), {"mapping.total_fields.limit": 2000}, False)
        changed = {"number_of_shards": 5, "gc_deletes": "2h", "mapping.total_fields.limit": 9, "codec": "zstd"}
        assert found == {**OURS, **changed}

    @pytest.mark.parametrize(
        ("field_type", "version", "expected"),
        [
            ("keyword", "3.1.0", {}),
            ("knn_vector", "2.19.1", {"knn": True}),
            ("knn_vector", "3.1.0", {"knn": True, "knn.derived_source.enabled": False}),
        ],
    )
    def it_prepares_an_index_for_vectors(self, field_type, version, expected):
        given = SyncConfig(table="lake.ns.t", mapping={"v": {"properties": {"w": {"type": field_type}}}})
        client = SimpleNamespace(info=lambda: {"version": {"number": version}})
        assert vector_settings(client, given) == expected


class DescribePublishedSettings:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, {"number_of_replicas": 2, "refresh_interval": None}),
            (
                {"index.refresh_interval": "5s", "number_of_replicas": 0, "codec": "zstd"},
                {"number_of_replicas": 0, "refresh_interval": "5s"},
            ),
            (
                {"auto_expand_replicas": "0-1"},
                {"number_of_replicas": 2, "refresh_interval": None, "auto_expand_replicas": "0-1"},
            ),
        ],
    )
    def it_returns_what_waited_for_the_end_of_the_export(self, settings, expected):
        assert published_settings(config(**settings)) == expected
