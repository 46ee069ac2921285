"""The lag that the status shows, by position and parameters alone."""

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import HistoryGapError
from icecdc_core.runs.cluster_status import lag_of
from tests.table_metadata import metadata


@pytest.mark.parametrize("stored", [{"snapshot_id": 9}, {"snapshot_id": 2, "nested": {"l.n.u": {"snapshot_id": 9}}}])
def it_is_unknown_if_the_snapshot_of_the_index_is_gone_or_its_table_was_created_again(stored):
    table = metadata((1, None, "append"), (2, 1, "append"), current=2)
    with pytest.raises(HistoryGapError):
        lag_of(lambda name: table, SyncConfig(table="l.n.t"), {"table": "l.n.t", **stored})
    follows = SyncConfig(table="l.n.t", on_history_gap="reexport")
    assert lag_of(lambda name: table, follows, {"table": "l.n.t", **stored}) == {}
