"""Validation finds what was planted, names it, and repairs just that."""

import pytest
from pyspark.sql.types import StructType

from icecdc_core import sync_changes, validate_table
from icecdc_core.errors import OpenSearchUnreachableError
from icecdc_core.opensearch import checksums
from icecdc_core.opensearch.checksums import index_checksums
from tests.loopback_proxy import loopback_proxy

CREATE = """CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, at TIMESTAMP, tags MAP<STRING, DOUBLE>) USING iceberg
TBLPROPERTIES ('format-version' = '2')"""
FILL = """INSERT INTO {t} SELECT id, concat('n', id), TIMESTAMP '2026-01-31 12:00:00.123456', map('x', id / 3)
FROM range(500)"""


@pytest.fixture
def exported(new_index):
    return new_index(CREATE, FILL)


def it_finds_and_repairs_what_differs(spark, exported, opensearch, name, indexed, sql, monkeypatch):
    # It parses no document where all texts are equal, and takes another way of writing for equal.
    with monkeypatch.context() as patched:
        patched.setattr(checksums, "content_digests", lambda *_: pytest.fail("parses documents"))
        report = validate_table(spark, exported)
    assert (report.ok, report.source_rows, report.index_documents) == (True, 500, 500)
    document = opensearch.get(index=name, id="8")["_source"]
    opensearch.index(index=name, id="8", body=dict(reversed(document.items())))
    report = validate_table(spark, exported)
    assert (report.ok, report.stale) == (True, 0)
    before = indexed()
    opensearch.delete(index=name, id="7")
    opensearch.index(index=name, id="9999", body={"id": 9999, "name": "extra"})
    opensearch.index(index=name, id="8", body={"id": 8, "name": "stale"})
    report = validate_table(spark, exported)
    found = (report.ok, report.missing_ids, report.extra_ids, report.stale_ids)
    assert found == (False, ["7"], ["9999"], ["8"])
    report = validate_table(spark, exported.replace(repair=True))
    assert (report.ok, report.repaired, indexed()) == (True, 3, before)
    sql("UPDATE {t} SET name = 'later' WHERE id IN (7, 8)")
    sync_changes(spark, exported)
    assert validate_table(spark, exported).ok
    # Others commit: it compares with the table, or with the position.
    sql("INSERT INTO {t} VALUES (1000, 'unsynced', NULL, NULL)")
    report = validate_table(spark, exported)
    assert (report.ok, report.missing_ids) == (False, ["1000"])
    assert validate_table(spark, exported.replace(validate_at="position")).ok


@pytest.mark.parametrize(("shards", "parallelism"), [pytest.param(1, 4, marks=pytest.mark.long), (3, 2)])
def it_reads_every_document_in_one_part_of_the_index(spark, new_index, opensearch, monkeypatch, shards, parallelism):
    config = new_index(CREATE, FILL, number_of_shards=shards)
    monkeypatch.setattr(checksums, "RANGE_DOCUMENTS", 60)
    monkeypatch.setattr(checksums, "PAGE_DOCUMENTS", 7)
    pit = opensearch.create_pit(index=config.index, params={"keep_alive": "1m"})["pit_id"]
    parts = checksums.index_parts(opensearch, pit, shards, parallelism)
    (physical,) = opensearch.indices.get_alias(name=config.index)
    frames = [index_checksums(spark, config, parts, physical, schema=each) for each in (StructType([]), None)]
    ids = [sorted(int(row.id) for row in frame.collect()) for frame in frames]
    opensearch.delete_pit(body={"pit_id": [pit]})
    assert (ids, len(parts) >= 8) == ([list(range(500))] * 2, True)


def it_says_nothing_of_an_index_that_is_only_partly_there(spark, new_index, opensearch, opensearch_url, name):
    config = new_index(CREATE, FILL, number_of_shards=2, retry_timeout_seconds=0)
    (physical,) = opensearch.indices.get_alias(name=name)
    (node,) = opensearch.nodes.info()["nodes"]
    lost = {"index": physical, "shard": 0, "node": node, "allow_primary": True}
    allocation = "index.routing.allocation.enable"

    def trouble(method, path, body):
        if method == "POST" and path.partition("?")[0].endswith("point_in_time"):
            opensearch.indices.put_settings(index=physical, body={allocation: "none"})
            opensearch.cluster.reroute(body={"commands": [{"cancel": lost}]})

    # By default the server answers a search with what it has.
    with loopback_proxy(opensearch_url, trouble=trouble) as proxy, pytest.raises(OpenSearchUnreachableError):
        validate_table(spark, config.replace(opensearch_url=proxy.url))
    opensearch.indices.put_settings(index=physical, body={allocation: None})
    opensearch.cluster.reroute()
    opensearch.cluster.health(index=physical, wait_for_status="yellow")
    assert validate_table(spark, config).ok


def it_reads_primary_shards_because_replicas_of_segments_may_be_behind(spark, new_index, opensearch_url):
    create = "CREATE TABLE {t} (id BIGINT NOT NULL) USING iceberg"
    config = new_index(create, "INSERT INTO {t} VALUES (1)", settings={"replication.type": "SEGMENT"})
    opened = []

    def note(method, path, body):
        if method == "POST" and path.partition("?")[0].endswith("point_in_time"):
            opened.append(path)

    with loopback_proxy(opensearch_url, trouble=note) as proxy:
        assert validate_table(spark, config.replace(opensearch_url=proxy.url)).ok
    assert ["preference=_primary" in path for path in opened] == [True]
