"""What tests of several packages ask of a table."""

from __future__ import annotations

import pytest


@pytest.fixture
def snapshots(sql):
    """Read the table's snapshots, oldest first."""
    return lambda: [row[0] for row in sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at").collect()]
