"""The user's settings win over ours, except those that would break a sync or a validation."""

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.config.values import iterate_leaves
from icecdc_core.errors import ConfigError
from icecdc_core.opensearch.index_settings import (
    check_settings,
    flat_settings,
    new_index_settings,
    pipelines,
    published_settings,
)

OURS = {"number_of_shards": 3, "number_of_replicas": 2, "gc_deletes": "1h", "translog.durability": "request"}


def config(**settings):
    """Parameters with these settings; what they set is not given as a parameter, too."""
    given = {path.rpartition(".")[2] for path, _ in iterate_leaves(settings)}
    ours = {"number_of_shards": 3, "number_of_replicas": 2}
    return SyncConfig(
        table="lake.ns.t", settings=settings, **{name: value for name, value in ours.items() if name not in given}
    )


class DescribeFlatSettings:
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
        assert flat_settings(settings) == {"translog.sync_interval": "5s"}

    def it_refuses_a_setting_that_is_given_twice(self):
        with pytest.raises(ConfigError, match="'refresh_interval' is given twice"):
            flat_settings({"refresh_interval": "5s", "index": {"refresh_interval": "1s"}})


class DescribeCheckSettings:
    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            ({"gc_deletes": "59m"}, "could bring back a document"),
            ({"index.gc_deletes": "3599s"}, "could bring back a document"),
            ({"gc_deletes": "60000ms"}, "could bring back a document"),
            ({"gc_deletes": -1}, "could bring back a document"),
            ({"gc_deletes": "soon"}, "could bring back a document"),
            ({"translog": {"durability": "ASYNC"}}, "lose documents that icecdc has committed"),
            ({"blocks.write": True}, "accepts no documents"),
            ({"append_only": {"enabled": True}}, "neither updates nor deletes"),
            ({"blocks": {"read_only": "true"}}, "accepts no documents"),
            ({"derived_source.enabled": True}, "_source"),
            ({"knn.derived_source.enabled": "true"}, "vectors in `_source`"),
            ({"routing_partition_size": 2}, "needs a routing"),
            ({"hidden": True}, "wildcards do not find"),
            ({"max_result_window": "4999"}, "pages of 5000 documents"),
            ({"max_slices_per_pit": 2, "index.number_of_shards": 3}, "each shard as a slice"),
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
            {"gc_deletes": "2d"},
            {"gc_deletes": "3600000ms"},
            {"translog.durability": "request"},
            {"blocks.write": False},
            {"routing_partition_size": 1},
            {"max_result_window": 20000},
            {"max_slices_per_pit": 1},
            {"sort": {"field": ["day"], "order": ["desc"]}},
            {"analysis": {"analyzer": {"names": {"type": "custom", "tokenizer": "standard"}}}},
        ],
    )
    def it_accepts_the_others(self, settings):
        check_settings(settings)

    def it_knows_the_shards_of_the_parameter(self):
        with pytest.raises(ConfigError, match="each shard as a slice"):
            check_settings({"max_slices_per_pit": 2}, number_of_shards=3)


class DescribeNewIndexSettings:
    def it_loads_without_replicas_and_refreshes(self):
        found = new_index_settings(config(refresh_interval="5s", auto_expand_replicas="0-1"), {}, loading=True)
        assert found == {**OURS, "number_of_replicas": 0, "refresh_interval": "-1"}

    def it_takes_the_settings_of_the_user_over_ours(self):
        given = {"index": {"number_of_shards": 5, "gc_deletes": "2h"}, "mapping.total_fields.limit": 9, "codec": "zstd"}
        found = new_index_settings(config(**given), {"mapping.total_fields.limit": 2000}, loading=False)
        changed = {"number_of_shards": 5, "gc_deletes": "2h", "mapping.total_fields.limit": 9, "codec": "zstd"}
        assert found == {**OURS, **changed}

    @pytest.mark.parametrize(
        ("settings", "major", "expected"),
        [
            ({}, None, {}),
            ({}, 2, {"knn": True}),
            ({}, 3, {"knn": True, "knn.derived_source.enabled": False}),
            ({"knn": False}, 3, {"knn": False}),
        ],
    )
    def it_prepares_an_index_for_vectors(self, settings, major, expected):
        assert new_index_settings(config(**settings), {}, False, major) == {**OURS, **expected}


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


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"default_pipeline": "_none"}, []),
        ({"index": {"default_pipeline": "b"}, "final_pipeline": "a"}, ["a", "b"]),
        ({"default_pipeline": "a", "final_pipeline": "a"}, ["a"]),
    ],
)
def it_names_the_pipelines_once(settings, expected):
    assert pipelines(settings) == expected
