"""Jobs that cannot run dry refuse `dry_run` before they begin; no Spark."""

import pytest

from icecdc_core import SyncConfig, replay_dead_letters, validate_table
from icecdc_core.errors import ConfigError


@pytest.mark.parametrize(
    ("job", "given", "words"),
    [
        (replay_dead_letters, {}, "A replay writes"),
        (validate_table, {"repair": True}, "A repair writes"),
    ],
)
def it_is_refused(job, given, words):
    with pytest.raises(ConfigError, match=rf"{words}.*\[dry_run=True\].*Remedy: "):
        job(None, SyncConfig(table="lake.ns.t", dry_run=True, **given))
