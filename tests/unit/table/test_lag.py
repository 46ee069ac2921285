"""How far an index is behind its table; snapshot n is committed at n seconds."""

import pytest

from icecdc_core.table.snapshots import lag
from tests.table_metadata import metadata

LINE = metadata((1, None, "append"), (2, 1, "append"), (3, 2, "append"), current=3)
# 3 was rolled back to 1, then 4 came.
ROLLED_BACK = metadata((1, None, "append"), (3, 1, "append"), (4, 1, "append"), current=4)


@pytest.mark.parametrize(
    ("table", "position", "head", "behind"),
    [
        (LINE, 3, 3, (0, 0.0)),
        (LINE, 1, 3, (2, 8.0)),
        (LINE, None, 3, (3, 9.0)),
        (LINE, None, None, (0, 0.0)),
        (ROLLED_BACK, 3, 4, (1, 6.0)),
        (ROLLED_BACK, 4, 1, (0, 0.0)),
        (LINE, 99, 3, (3, 9.0)),
    ],
    ids=["equal", "behind", "nothing exported", "empty table", "rolled back", "ahead", "position expired"],
)
def it_counts_the_snapshots_and_the_age_of_the_oldest(table, position, head, behind):
    assert lag(table, position, head, now=10.0) == behind
