"""The positions index is deleted, edited, created by a write or by another release: each is a typed error."""

from __future__ import annotations

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.commits.position import FORMAT
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IndexNotFoundError, OpenSearchUnreachableError, PositionError
from icecdc_core.jobs.status import status
from tests.loopback_proxy import loopback_proxy


@pytest.fixture
def config(make_config):
    """The defaults."""
    return make_config()


@pytest.fixture
def position(opensearch, exported):
    """The position's document; call with changes to write it so."""
    where = {"index": exported.positions_index, "id": f"position:{exported.index}"}
    source = opensearch.get(**where)["_source"]
    return lambda **changes: opensearch.index(**where, body={**source, **changes}, params={"refresh": "true"})


def at_first(opensearch, act, kind):
    """Do something once, just before the first request of a kind reaches the server."""
    left = [1]

    def trouble(method, path, body):
        if kind in path and method in ("PUT", "POST") and left:
            left.pop()
            act()

    return trouble


class DescribeAPositionsIndexThatIsDeletedUnderARun:
    @pytest.mark.parametrize("kind", ["_bulk", "_doc/position", "_doc/commit"])
    def it_is_a_typed_error_and_stays_deleted(self, spark, exported, opensearch, opensearch_url, equal, kind):
        trouble = at_first(opensearch, lambda: opensearch.indices.delete(index=exported.positions_index), kind)
        with (
            loopback_proxy(opensearch_url, trouble=trouble) as proxy,
            pytest.raises(IndexNotFoundError, match="deleted under the run"),
        ):
            sync_changes(spark, exported.replace(opensearch_url=proxy.url))
        came_back = opensearch.indices.exists(index=exported.positions_index)
        export_table(spark, exported)
        log = PositionStore(opensearch, exported).log()
        assert (came_back, len(log), log[0]["kind"], equal(exported)) == (False, 1, "export", True)

    def it_is_a_typed_error_when_only_the_position_was_deleted(self, spark, exported, opensearch, opensearch_url):
        def delete():
            opensearch.delete(index=exported.positions_index, id=f"position:{exported.index}")

        trouble = at_first(opensearch, delete, "_bulk")
        with (
            loopback_proxy(opensearch_url, trouble=trouble) as proxy,
            pytest.raises(IndexNotFoundError, match="deleted under the run"),
        ):
            sync_changes(spark, exported.replace(opensearch_url=proxy.url))


@pytest.mark.parametrize("mapping", [{}, {"_source": {"enabled": False}}], ids=["guessed", "no sources"])
def it_refuses_a_positions_index_that_icecdc_did_not_create(spark, exported, opensearch, mapping):
    index = exported.positions_index
    ours = opensearch.indices.get_mapping(index=index)[index]["mappings"] if mapping else {}
    opensearch.indices.delete(index=index)
    opensearch.indices.create(index=index, body={"mappings": {**ours, **mapping}})
    opensearch.index(index=index, id="x", body={"type": "commit", "index": exported.index})
    with pytest.raises(PositionError, match="icecdc did not create the positions index"):
        export_table(spark, exported)


class DescribeAPositionOfAnotherRelease:
    @pytest.mark.parametrize(
        ("change", "message"),
        [({"format": FORMAT + 1}, f"has format {FORMAT + 1}"), ({"vector": {}}, "vector: Unexpected")],
        ids=["newer", "edited"],
    )
    @pytest.mark.parametrize("job", [export_table, sync_changes, validate_table])
    def it_is_refused_by_name_when_it_is_a_newer_one(self, spark, exported, position, job, change, message):
        position(**change)
        with pytest.raises(PositionError, match=message):
            job(spark, exported)

    def it_is_a_problem_in_the_status(self, spark, exported, position):
        position(format=FORMAT + 1)
        (found,) = status(spark, exported).indexes
        assert (found.index, f"has format {FORMAT + 1}" in found.problem) == (exported.index, True)


class DescribeAnAnswerThatLacksFields:
    @pytest.mark.parametrize("lost", ["_seq_no", "_primary_term", "_source"])
    def it_is_a_typed_error(self, spark, exported, opensearch_url, lost):
        def spoil(path, body, answer):
            return {name: value for name, value in answer.items() if "_doc/position" not in path or name != lost}

        with (
            loopback_proxy(opensearch_url, spoil=spoil) as proxy,
            pytest.raises(OpenSearchUnreachableError),
        ):
            sync_changes(spark, exported.replace(opensearch_url=proxy.url, retry_timeout_seconds=0.2))
