"""The user's settings win over ours, except those that would break a sync or a validation."""

from types import SimpleNamespace

import pytest

from icecdc_core.config import SyncConfig
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
    return SyncConfig(table="lake.ns.t", number_of_shards=3, number_of_replicas=2, settings=settings)


def it_reads_every_spelling():
    for settings in (
        {"index.translog.sync_interval": "5s"},
        {"index": {"translog.sync_interval": "5s"}},
        {"translog": {"sync_interval": "5s"}, "refresh_interval": None},
    ):
        assert given_settings(settings) == {"translog.sync_interval": "5s"}


class DescribeCheckSettings:
    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            *(({"index.gc_deletes": value}, "could bring back") for value in ("59m", "3599s", "60000ms", "soon")),
            ({"translog": {"durability": "ASYNC"}}, "lose documents"),
            ({"derived_source.enabled": True}, "_source"),
            ({"knn.derived_source.enabled": "true"}, "vectors in `_source`"),
        ],
    )
    def it_says_why_a_setting_is_refused(self, settings, reason):
        with pytest.raises(ConfigError, match=reason) as raised:
            check_settings(settings)
        assert (raised.value.subject, bool(raised.value.remedy)) == ("settings", True)
        for value in ("1h", "60m", "3600000ms"):
            check_settings({"gc_deletes": value, "translog.durability": "request", "knn": True})


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


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"codec": "zstd"}, {"number_of_replicas": 2, "refresh_interval": None}),
        ({"index.refresh_interval": "5s", "number_of_replicas": 0, "auto_expand_replicas": "0-1"},
            {"number_of_replicas": 0, "refresh_interval": "5s", "auto_expand_replicas": "0-1"}),
    ],
)  # fmt: skip
def it_sets_what_waited_for_the_end_of_the_export(settings, expected):
    assert published_settings(config(**settings)) == expected
