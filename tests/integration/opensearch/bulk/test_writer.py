"""The bulk writer against a real server behind a failing proxy: every operation has exactly one outcome."""

import json

import pytest

from icecdc_core.errors import OpenSearchRequestError
from icecdc_core.opensearch.bulk import BulkWriter
from icecdc_core.opensearch.client import Connection
from tests.checks.bulk_writes import write
from tests.servers.loopback_proxy import loopback_proxy


def index_action(number, epoch=1, value=None):
    head = {"index": {"_id": str(number), "version": 2 * epoch + 1, "version_type": "external"}}
    return f"{json.dumps(head)}\n{json.dumps({'n': number if value is None else value})}\n"


def delete_action(number, epoch=1):
    head = {"delete": {"_id": str(number), "version": 2 * epoch, "version_type": "external"}}
    return f"{json.dumps(head)}\n"


@pytest.fixture
def alias(opensearch, name):
    """An index with a write alias."""
    mapping = {"dynamic": "strict", "properties": {"n": {"type": "long"}}}
    opensearch.indices.create(index=name, body={"mappings": mapping, "aliases": {f"{name}--WRITE": {}}})
    yield f"{name}--WRITE"
    opensearch.indices.delete(index=f"{name}*", params={"ignore_unavailable": "true"})


@pytest.fixture
def settings(opensearch_url, alias):
    """Build settings of the bulk writer; keyword arguments override."""

    def build(url=opensearch_url, **overrides):
        values = {"alias": alias, "bulk_bytes": 4096, "bulk_connections": 2, "retry_timeout_seconds": 20.0}
        connection = Connection(url, options={"timeout": 10.0})
        return BulkWriter(connection, **{**values, "max_rejected_documents": 0, **overrides})

    return build


def it_lets_an_upsert_beat_a_delete_of_the_same_batch_and_no_late_batch_undo_newer_data(settings, indexed):
    write(settings(), index_action(1), delete_action(1), delete_action(2), index_action(2), index_action(3))
    assert indexed() == {"1": {"n": 1}, "2": {"n": 2}, "3": {"n": 3}}
    write(settings(), index_action(1, epoch=3, value=20), delete_action(2, epoch=3))
    result = write(settings(), index_action(1, epoch=2, value=10), index_action(2, epoch=2), index_action(3, epoch=2))
    assert (result.counts.already_applied, indexed()) == (2, {"1": {"n": 20}, "3": {"n": 3}})


class DescribeTrouble:
    def it_halves_a_request_until_it_fits_and_rejects_the_document_that_never_does(
        self, opensearch_url, settings, indexed
    ):
        actions = [index_action(each, value=1) for each in (*range(10, 26), "x" * 400)]

        def too_large(_, path, body):
            return (413, {"error": "too large"}) if "_bulk" in path and len(body) > 5 * len(actions[0]) else None

        with loopback_proxy(opensearch_url, trouble=too_large) as proxy:
            result = write(settings(proxy.url, max_rejected_documents=1), *actions)
        assert (result.counts.upserts, result.counts.bytes, len(indexed())) == (16, sum(map(len, actions)), 16)
        assert [(sample["id"], sample["status"]) for sample in result.rejected_samples] == [("x" * 400, 413)]

    def it_retries_only_those_items_and_writes_none_twice(self, opensearch_url, settings, indexed):
        bulks = []

        def spoil(path, body, answer):
            """The first answer says 429 for the first item, though it was written: the replay is a 409."""
            if "_bulk" in path:
                bulks.append(body.count(b"\n") // 2)
                if len(bulks) == 1:
                    error = {"type": "es_rejected_execution_exception", "reason": "made by the test"}
                    answer["items"][0] = {"index": {"status": 429, "error": error}}
            return answer

        with loopback_proxy(opensearch_url, spoil=spoil) as proxy:
            result = write(settings(proxy.url), *[index_action(n) for n in range(5)])
        assert (bulks, result.counts.upserts, result.counts.already_applied, len(indexed())) == ([5, 1], 4, 1, 5)

    def it_does_not_retry_a_wrong_request(self, opensearch_url, settings):
        wrong = 400, {"error": {"type": "illegal_argument_exception", "reason": "made by the test"}}
        with loopback_proxy(opensearch_url, trouble=lambda *request: wrong) as proxy:
            failure = write(settings(proxy.url), index_action(1)).failure
        assert (type(failure), len(proxy.bulks)) == (OpenSearchRequestError, 1)
        assert "illegal_argument_exception: made by the test" in str(failure)
