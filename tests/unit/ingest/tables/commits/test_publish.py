"""What becomes of a staged snapshot, by the table's current snapshot."""

from __future__ import annotations

import pytest

from icecdc_core.ingest.publish import StagedSnapshot, next_publish_step


class DescribePublishDecisions:
    @pytest.mark.parametrize(
        ("head", "parent", "is_append", "can_restage", "expected"),
        [
            (1, 1, True, True, "publish"),
            (None, None, True, True, "publish"),
            (1, 1, False, False, "publish"),
            (2, 1, True, True, "restage"),
            (2, None, True, True, "restage"),
            # A merge depends on the rows of the table, also if it only inserts.
            (2, 1, True, False, "write again"),
            (2, 1, False, True, "write again"),
        ],
    )
    def it_publishes_restages_or_writes_again(self, head, parent, is_append, can_restage, expected):
        staged = StagedSnapshot(9, 9, 9000, parent, {}, is_append, 1, 1, 1)
        assert next_publish_step(head, staged, can_restage) == expected
