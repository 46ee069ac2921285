"""Runs that end at an unlucky moment."""

from unittest import mock

import pytest

from icecdc_core.commits.position import active_runs


class Killed(Exception):  # noqa: N818 (it is no error of the package)
    """What a kill looks like to the code that it hits."""


def killed_at(module, function, work):
    with mock.patch.object(module, function, side_effect=Killed), pytest.raises(Killed):
        work()


def end_lease(opensearch, config):
    """Let the run of this process that has the lock, if there is one, look dead to others."""
    found = opensearch.get(index=config.positions_index, id=f"position:{config.index}")["_source"]
    if found["owner"]:
        active_runs.discard(found["owner"]["run_id"])
