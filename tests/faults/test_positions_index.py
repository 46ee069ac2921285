"""The positions index is deleted, created by a write or of another release: each is a typed error."""

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.commits.position import FORMAT
from icecdc_core.errors import PositionError
from icecdc_core.jobs.status import status


def it_refuses_a_position_of_a_newer_release_by_name(spark, exported, opensearch):
    where = {"index": exported.positions_index, "id": f"position:{exported.index}"}
    source = opensearch.get(**where)["_source"]
    opensearch.index(**where, body={**source, "format": FORMAT + 1}, params={"refresh": "true"})
    for job in (export_table, sync_changes, validate_table):
        with pytest.raises(PositionError, match=f"has format {FORMAT + 1}"):
            job(spark, exported)
    (found,) = status(spark, exported).indexes
    assert f"has format {FORMAT + 1}" in found.problem
    # One that icecdc did not create.
    opensearch.indices.delete(index=where["index"])
    opensearch.index(index=where["index"], id="x", body={"type": "commit", "index": exported.index})
    with pytest.raises(PositionError, match="icecdc did not create the positions index"):
        export_table(spark, exported)
