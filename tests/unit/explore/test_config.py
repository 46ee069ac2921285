"""The parameters of an exploration: what a job or a person may write, and what is refused."""

from __future__ import annotations

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.explore.config import ExploreConfig

TABLE = {"table": "lake.ns.t"}


class DescribeTheParameters:
    def it_takes_all_as_texts(self):
        config = ExploreConfig(**TABLE, from_snapshot="-2", sample_rows="5", query="name:word", repair="false")
        assert (config.from_snapshot, config.sample_rows, config.query) == ("-2", 5, "name:word")

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"from_snapshot": -2}, "-2"),
            ({"to_snapshot": 6120012345678901234}, "6120012345678901234"),
            ({"document_id": 7}, "7"),
            ({"document_id": 7.5}, "7.5"),
            ({"query": {"match_all": {}}}, '{"match_all": {}}'),
        ],
    )
    def it_takes_numbers_and_mappings_as_texts(self, given, expected):
        (name,) = given
        assert getattr(ExploreConfig(**TABLE, **given), name) == expected

    def it_gives_a_job_only_what_a_job_has(self):
        config = ExploreConfig(**TABLE, row_filter="id > 1", query="x", report_path="r.json")
        actual = config.job_config(report_path="", dry_run=True)
        assert actual == SyncConfig(**TABLE, row_filter="id > 1", dry_run=True)
