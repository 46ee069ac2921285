"""Whether several indexes can share a Spark application; pure."""

from __future__ import annotations

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError
from icecdc_core.jobs.many import require_one_session


def configs(*parameters):
    return {f"index{n}": SyncConfig(table="lake.ns.t", **given) for n, given in enumerate(parameters)}


class DescribeOneSession:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"warehouse": "/a"}, {"warehouse": "/a/"}),
            ({"spark_conf": {"spark.x": "1"}}, {"spark_conf": {"spark.x": "1"}}),
            (
                {"catalog_properties": {"uri": "http://a"}},
                {"table": "pond.ns.t", "catalog_properties": {"uri": "http://b"}},
            ),
        ],
    )
    def it_serves_indexes_that_agree(self, one, other):
        given = {"a": SyncConfig(**{"table": "lake.ns.t", **one}), "b": SyncConfig(**{"table": "lake.ns.t", **other})}
        require_one_session(given)

    @pytest.mark.parametrize(
        ("one", "other", "parameter"),
        [
            ({"warehouse": "/a"}, {"warehouse": "/b"}, "catalog_properties"),
            ({"warehouse": "/a"}, {}, "catalog_properties"),
            (
                {"catalog_properties": {"uri": "env:A"}},
                {"catalog_properties": {"uri": "env:B"}},
                "catalog_properties",
            ),
            ({"spark_conf": {"spark.x": "1"}}, {}, "spark_conf"),
            ({"spark_conf": {"spark.x": "1"}}, {"spark_conf": {"spark.x": "2"}}, "spark_conf"),
        ],
    )
    def it_refuses_indexes_that_do_not(self, one, other, parameter):
        with pytest.raises(ConfigError) as caught:
            require_one_session(configs(one, other))
        message = str(caught.value)
        assert message.startswith(f"{parameter}: 'index0' and 'index1' ")
        assert [value for value in ("/a", "env:A", "=1") if value in message] == []
