"""Jobs that cannot run dry refuse `dry_run` before they begin, wherever it was set; no Spark."""

from __future__ import annotations

import pytest

from icecdc_core import SyncConfig, replay_dead_letters, validate_table
from icecdc_core.errors import ConfigError

INDEXES = """
defaults: {dry_run: true}
indexes:
  films: {table: lake.shop.film}
"""


@pytest.mark.parametrize(
    ("job", "given", "words"),
    [
        (replay_dead_letters, {}, "A replay writes"),
        (validate_table, {"repair": True}, "A repair writes"),
    ],
)
class DescribeADryRun:
    def it_is_refused(self, job, given, words):
        with pytest.raises(ConfigError, match=rf"{words}.*\[dry_run=True\].*Remedy: "):
            job(None, SyncConfig(table="lake.ns.t", dry_run=True, **given))

    def it_is_refused_from_a_file_too(self, tmp_path, job, given, words):
        path = tmp_path / "indexes.yml"
        path.write_text(INDEXES)
        with pytest.raises(ConfigError, match=words):
            job(None, SyncConfig.load(path, **given))
