"""Validation finds what was planted, names it, and repairs just that, whatever versions others left."""

import json

import pytest
from pyspark.sql.types import StructType

from icecdc_core import export_table, replay_dead_letters, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import DocumentVersionError, OpenSearchUnreachableError, RejectedDocumentsError
from icecdc_core.opensearch import checksums
from icecdc_core.opensearch.checksums import index_checksums
from icecdc_core.opensearch.indexes import point_in_time
from tests.servers.loopback_proxy import loopback_proxy

HIGHEST = 2**63 - 2
CREATE = """CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, at TIMESTAMP, tags MAP<STRING, DOUBLE>) USING iceberg
TBLPROPERTIES ('format-version' = '2')"""
FILL = """INSERT INTO {t} SELECT id, concat('n', id), TIMESTAMP '2026-01-31 12:00:00.123456', map('x', id / 3)
FROM range(500)"""


@pytest.fixture
def exported(new_index):
    return new_index(CREATE, FILL, number_of_shards=2)


def repaired(spark, config):
    return validate_table(spark, config.replace(repair=True))


def write(opensearch, index, identity, version, name="foreign"):
    params = {"version": version, "version_type": "external"}
    opensearch.index(index=index, id=identity, body={"id": int(identity), "name": name}, params=params)


def delete(opensearch, index, identity, version):
    opensearch.delete(index=index, id=identity, params={"version": version, "version_type": "external"})


def it_finds_and_repairs_what_differs(spark, exported, opensearch, name, indexed, sql):
    # It takes another way of writing for equal.
    report = validate_table(spark, exported)
    assert (report.ok, report.source_rows, report.index_documents) == (True, 500, 500)
    document = opensearch.get(index=name, id="9")["_source"]
    opensearch.index(index=name, id="9", body=dict(reversed(document.items())))
    before = indexed()
    opensearch.delete(index=name, id="7")
    opensearch.index(index=name, id="9999", body={"id": 9999, "name": "extra"})
    opensearch.index(index=name, id="8", body={"id": 8, "name": "stale"})
    report = validate_table(spark, exported)
    found = (report.ok, report.missing_ids, report.extra_ids, report.stale_ids)
    assert found == (False, ["7"], ["9999"], ["8"])
    report = repaired(spark, exported)
    assert (report.ok, report.repaired, indexed()) == (True, 3, before)
    sql("UPDATE {t} SET name = 'later' WHERE id IN (7, 8, 9)")
    sync_changes(spark, exported)
    # Others commit: it compares with the table, or with the position.
    sql("INSERT INTO {t} VALUES (1000, 'unsynced', NULL, NULL)")
    report = validate_table(spark, exported)
    assert (report.ok, report.missing_ids, report.extra, report.stale) == (False, ["1000"], 0, 0)
    assert validate_table(spark, exported.replace(validate_at="position")).ok


def it_reads_every_document_in_one_part_of_the_index_and_pages_of_some_bytes(
    spark, new_index, opensearch, opensearch_url, monkeypatch
):
    config, sizes = new_index(CREATE, FILL, number_of_shards=3), []
    for name, value in (("RANGE_DOCUMENTS", 60), ("FIRST_DOCUMENTS", 7), ("PAGE_BYTES", 1500)):
        monkeypatch.setattr(checksums, name, value)
    (physical,) = opensearch.indices.get_alias(name=config.index)
    limit = {"point_in_time.max_keep_alive": "5m"}  # less than it asks for at first
    opensearch.cluster.put_settings(body={"transient": limit})
    try:
        with (
            point_in_time(opensearch, config.index) as pit,
            loopback_proxy(opensearch_url, trouble=lambda *asked: sizes.append(json.loads(asked[2])["size"])) as proxy,
        ):
            parts = checksums.index_parts(opensearch, pit, 3, 2)
            config = config.replace(opensearch_url=proxy.url)
            frames = [
                index_checksums(spark, config, parts, 5000, physical, schema=each) for each in (StructType([]), None)
            ]
            ids = [sorted(int(row.id) for row in frame.collect()) for frame in frames]
    finally:
        opensearch.cluster.put_settings(body={"transient": dict.fromkeys(limit)})
    assert (ids, len(parts) >= 8, 1 < max(sizes) < 16) == ([list(range(500))] * 2, True, True)


def it_says_nothing_of_an_index_that_is_only_partly_there(spark, new_index, opensearch, opensearch_url, name):
    # Replicas of segments may be behind, so it asks primary shards.
    settings = {"replication.type": "SEGMENT"}
    config = new_index(CREATE, FILL, number_of_shards=2, settings=settings, retry_timeout_seconds=0)
    (physical,) = opensearch.indices.get_alias(name=name)
    (node,) = opensearch.nodes.info()["nodes"]
    lost = {"index": physical, "shard": 0, "node": node, "allow_primary": True}
    asks_primaries, refused = [], []

    def trouble(method, path, body):
        if method == "POST" and path.partition("?")[0].endswith("point_in_time"):
            asks_primaries.append("preference=_primary" in path)
            if len(asks_primaries) > 1:
                opensearch.cluster.reroute(body={"commands": [{"cancel": lost}]})

    with loopback_proxy(opensearch_url, trouble=trouble) as proxy:
        through = config.replace(opensearch_url=proxy.url)
        assert validate_table(spark, through).ok
        # By default the server answers a search with what it has. It starts a lost shard again after some 0.1 s.
        while not refused and len(asks_primaries) < 10:
            try:
                assert validate_table(spark, through).ok
            except OpenSearchUnreachableError as error:
                refused.append(error)
    assert (set(asks_primaries), len(refused)) == ({True}, 1)
    opensearch.cluster.health(index=physical, wait_for_status="yellow")
    assert validate_table(spark, config).ok


class DescribeARepair:
    def it_keeps_odd_names_of_columns_and_documents(self, spark, new_index, opensearch, indexed):
        identity = "current version [4503599627370497]"
        config = new_index(
            "CREATE TABLE {t} (name STRING NOT NULL, `_Document_ID` STRING) USING iceberg",
            f"INSERT INTO {{t}} VALUES ('{identity}', 'd1'), ('b', 'd2'), ('c', 'd3')",
            identifier_columns=["name"],
        )
        before = indexed()
        delete(opensearch, config.index, identity, 1000)
        report = repaired(spark, config)
        assert (report.ok, report.repaired, indexed()) == (True, 1, before)
        assert PositionStore(opensearch, config).read().epoch == 501

    def it_is_above_the_versions_of_others(self, spark, sql, exported, opensearch, indexed, name):
        before = indexed()
        delete(opensearch, exported.index, "7", 1000)
        delete(opensearch, exported.index, "8", 5000)
        write(opensearch, exported.index, "9", 300)
        write(opensearch, exported.index, "2099", 200)
        for routing in ("x", "y"):  # one in each shard
            opensearch.index(index=exported.index, id="2098", body={"id": 2098}, routing=routing)
        report = repaired(spark, exported)
        assert (report.ok, report.repaired, indexed()) == (True, 6, before)
        sql("UPDATE {t} SET name = 'later' WHERE id IN (7, 1)")
        sync_changes(spark, exported)

        # A column that no sync has seen. All other documents are right.
        sql("ALTER TABLE {t} ADD COLUMN added INT")
        opensearch.delete(index=exported.index, id="3", refresh=True)
        report = repaired(spark, exported)
        assert (report.ok, report.repaired) == (True, 1)
        assert indexed()["3"] == {**before["3"], "added": None}
        sync_changes(spark, exported)

        # A sync that meets the version of somebody else keeps a dead letter until a repair, or fails; its remedy helps.
        config = exported.replace(max_rejected_documents=1, dead_letter_table=f"lake.ns.dead_letters_{name}")
        none = {"letters": 1, "replayed": 0, "superseded": 0, "rejected": 0}
        write(opensearch, config.index, "5", 50_000)
        sql("DELETE FROM {t} WHERE id = 5")
        report = sync_changes(spark, config)
        assert (report.rejected, report.already_applied) == (1, 0)
        assert replay_dead_letters(spark, config).steps == [none | {"rejected": 1}]
        report = repaired(spark, config)
        assert (report.ok, report.repaired) == (True, 1)
        assert replay_dead_letters(spark, config).steps == [none | {"replayed": 1}]
        spark.sql(f"DROP TABLE {config.dead_letter_table}")
        write(opensearch, exported.index, "8", HIGHEST)
        sql("UPDATE {t} SET name = 'later' WHERE id = 8")
        with pytest.raises(RejectedDocumentsError, match=f"'8'.*version {HIGHEST}.*Remedy: .*run the export"):
            sync_changes(spark, exported)
        export_table(spark, exported)
        assert (indexed()["8"]["name"], len(indexed())) == ("later", 499)


@pytest.mark.long
def it_names_a_version_that_nothing_is_above_and_spoils_no_position(spark, sql, exported, opensearch, indexed):
    # A document that is stale, one that is extra, and one that was deleted.
    for spoil, identity, version in ((write, "7", HIGHEST), (write, "999", 2**60), (delete, "7", HIGHEST)):
        before = PositionStore(opensearch, exported).read()
        spoil(opensearch, exported.index, identity, version)
        with pytest.raises(DocumentVersionError, match=f"(?s)'{identity}'.*{version}.*run the export"):
            repaired(spark, exported)
        after = PositionStore(opensearch, exported).read()
        assert (after == before or spoil is delete, after.epoch < 100) == (True, True)
        sql("UPDATE {t} SET name = concat(name, '!') WHERE id = 8")
        sync_changes(spark, exported)
        assert indexed()["8"]["name"][-1] == "!"
        export_table(spark, exported)
        assert validate_table(spark, exported).ok
