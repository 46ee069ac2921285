"""The positions index is deleted, created by a write or of another release: each is a typed error."""

from __future__ import annotations

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.commits.position import FORMAT
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IndexNotFoundError, PositionError
from icecdc_core.jobs.status import status
from tests.loopback_proxy import at_first, loopback_proxy


@pytest.fixture
def config(make_config):
    """The defaults."""
    return make_config()


class DescribeAPositionsIndexThatIsDeletedUnderARun:
    @pytest.mark.parametrize("kind", ["_bulk", pytest.param("_doc/commit", marks=pytest.mark.long)])
    def it_is_a_typed_error_and_stays_deleted(self, spark, exported, opensearch, opensearch_url, equal, kind):
        def delete():
            opensearch.indices.delete(index=exported.positions_index)

        with (
            loopback_proxy(opensearch_url, trouble=at_first(kind, delete)) as proxy,
            pytest.raises(IndexNotFoundError, match="deleted under the run"),
        ):
            sync_changes(spark, exported.replace(opensearch_url=proxy.url))
        came_back = opensearch.indices.exists(index=exported.positions_index)
        export_table(spark, exported)
        log = PositionStore(opensearch, exported).log()
        assert (came_back, len(log), log[0]["kind"], equal(exported)) == (False, 1, "export", True)


def it_refuses_a_positions_index_that_icecdc_did_not_create(spark, exported, opensearch):
    index = exported.positions_index
    opensearch.indices.delete(index=index)
    opensearch.index(index=index, id="x", body={"type": "commit", "index": exported.index})
    with pytest.raises(PositionError, match="icecdc did not create the positions index"):
        export_table(spark, exported)


def it_refuses_a_position_of_a_newer_release_by_name(spark, exported, opensearch):
    where = {"index": exported.positions_index, "id": f"position:{exported.index}"}
    source = opensearch.get(**where)["_source"]
    opensearch.index(**where, body={**source, "format": FORMAT + 1}, params={"refresh": "true"})
    for job in (export_table, sync_changes, validate_table):
        with pytest.raises(PositionError, match=f"has format {FORMAT + 1}"):
            job(spark, exported)
    (found,) = status(spark, exported).indexes
    assert f"has format {FORMAT + 1}" in found.problem
