"""What a smoke test refuses before it begins; no Spark."""

from __future__ import annotations

import pytest

from icecdc_core import SyncConfig
from icecdc_core.errors import ConfigError
from icecdc_core.jobs.smoke import access_mode, smoke_test

TAG = "spark.databricks.clusterUsageTags.dataSecurityMode"


def it_refuses_a_dry_run_because_it_writes():
    with pytest.raises(ConfigError, match="writes, to scratch tables"):
        smoke_test(None, SyncConfig(table="lake.ns.t", dry_run=True))


@pytest.mark.parametrize(
    ("settings", "runtime", "expected"),
    [
        ({TAG: "SINGLE_USER"}, "18.0", "SINGLE_USER"),
        ({TAG: "NONE"}, "18.0", "NONE"),
        ({}, "18.0", "unknown"),
        ({TAG: "SINGLE_USER"}, "", "not on Databricks"),
    ],
)
def it_reports_the_access_mode_that_the_cluster_has(settings, runtime, expected):
    assert access_mode(settings.get, runtime) == expected
