"""What a smoke test refuses before it begins; no Spark."""

from __future__ import annotations

import pytest

from icecdc_core import SyncConfig
from icecdc_core.errors import ConfigError
from icecdc_core.jobs.smoke import smoke_test


def it_refuses_a_dry_run_because_it_writes():
    with pytest.raises(ConfigError, match="writes, to scratch tables"):
        smoke_test(None, SyncConfig(table="lake.ns.t", dry_run=True))
