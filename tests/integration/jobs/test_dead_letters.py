"""Bad documents among many: kept with everything that is needed to write them again, and written again."""

import json

import pytest
from pyspark.sql import functions as F

from icecdc_core import export_table, replay_dead_letters, rollback_index, sync_changes
from icecdc_core.commits.position import Batch
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import ConfigError, RejectedDocumentsError
from icecdc_core.jobs import sync
from icecdc_core.opensearch.bulk import BulkResult
from icecdc_core.opensearch.counts import Counts
from icecdc_core.runs.dead_letters import open_dead_letters, resolve_dead_letters, store_dead_letters
from tests.faults.tables import rows_as_documents
from tests.given.broken_runs import killed_at

CREATE = "CREATE TABLE {t} (id BIGINT NOT NULL, value DOUBLE) USING iceberg TBLPROPERTIES ('format-version' = '2')"
FILL = "INSERT INTO {t} SELECT id, id / 2 FROM range(50)"
NAN = "double('NaN')"


@pytest.fixture
def config(spark, make_config, name):
    """Dead letters in a table of this test's own."""
    table = f"lake.ns.dead_letters_{name}"
    yield make_config(max_rejected_documents=2, dead_letter_table=table)
    spark.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.fixture
def dead_letters(spark, config):
    """Read the dead letters."""
    return lambda: [row.asDict() for row in spark.table(config.dead_letter_table).orderBy("epoch", "version").collect()]


@pytest.fixture
def exported(spark, sql, config):
    """Fifty rows and their index."""
    sql(CREATE, FILL)
    export_table(spark, config)
    return config


def take_nan(opensearch, index):
    """Let an index take what it refused: close it, let it ignore malformed numbers, open it again."""
    (physical,) = opensearch.indices.get_alias(name=index)
    opensearch.indices.close(index=physical)
    opensearch.indices.put_settings(index=physical, body={"index.mapping.ignore_malformed": True})
    opensearch.indices.open(index=physical)
    opensearch.cluster.health(index=physical, wait_for_status="yellow")


def it_keeps_all_to_write_the_document_again(spark, sql, exported, opensearch, indexed, dead_letters):
    before = PositionStore(opensearch, exported).read()
    sql(f"UPDATE {{t}} SET value = {NAN} WHERE id = 7")
    with pytest.raises(ConfigError, match="dead_letter_table"):
        sync_changes(spark, exported.replace(dead_letter_table="nowhere.ns.dead_letters"))
    assert PositionStore(opensearch, exported).read().snapshot_id == before.snapshot_id
    report = sync_changes(spark, exported)
    (dead_letter,) = dead_letters()
    found = [dead_letter[key] for key in ("index", "table", "document_id", "snapshot_id", "version", "run_id")]
    version = 2 * report.epoch + 1
    assert found == [exported.index, exported.table, "7", report.to_snapshot_id, version, report.run_id]
    assert (json.loads(dead_letter["document"]), dead_letter["status"]) == ({"id": 7, "value": "NaN"}, 400)
    assert "mapper_parsing_exception" in dead_letter["reason"]
    # It is counted apart, and there once however often the batch is replayed.
    sql(f"INSERT INTO {{t}} SELECT id, IF(id = 105, {NAN}, 1.5) FROM range(100, 120)")
    killed_at(sync, "commit_batch", lambda: sync_changes(spark, exported))
    assert (len(indexed()), len(dead_letters())) == (69, 2)
    report = sync_changes(spark, exported)
    assert (report.already_applied, report.rejected, len(indexed()), len(dead_letters())) == (19, 1, 69, 2)


def it_counts_rejected_documents_over_the_groups_of_an_export(spark, sql, config, dead_letters):
    sql(CREATE, f"INSERT INTO {{t}} SELECT id, {NAN} FROM range(0, 3, 1, 3)")
    with pytest.raises(RejectedDocumentsError, match="At least 3 documents"):
        export_table(spark, config.replace(export_group_bytes=1))
    assert len(dead_letters()) == 3


def it_keeps_the_position_and_the_dead_letters_if_they_are_too_many(
    spark, sql, exported, opensearch, indexed, dead_letters
):
    before = PositionStore(opensearch, exported).read()
    sql(f"UPDATE {{t}} SET value = {NAN} WHERE id < 3")
    with pytest.raises(RejectedDocumentsError, match="2 are allowed"):
        sync_changes(spark, exported)
    after = PositionStore(opensearch, exported).read()
    assert (after.snapshot_id, bool(after.batch.failure), len(dead_letters())) == (before.snapshot_id, True, 3)
    sql("INSERT INTO {t} VALUES (901, 0.5)")  # the next batch takes the place of the failed one, and fails, too
    with pytest.raises(RejectedDocumentsError, match="2 are allowed"):
        sync_changes(spark, exported)
    assert (len(dead_letters()), open_dead_letters(spark, exported).count()) == (6, 3)
    sql("UPDATE {t} SET value = 0.5 WHERE id < 3")
    sync_changes(spark, exported)
    assert indexed() == rows_as_documents(spark, exported.table)
    assert open_dead_letters(spark, exported).count() == 0


class DescribeReplay:
    def it_writes_the_document_with_its_version(self, spark, sql, exported, opensearch, indexed, dead_letters):
        sql(f"UPDATE {{t}} SET value = {NAN} WHERE id IN (7, 8)")
        sync_changes(spark, exported)
        report = replay_dead_letters(spark, exported)  # they are rejected again, and stay open
        resolutions = {letter["resolution"] for letter in dead_letters()}
        assert (report.rejected, report.steps[0]["replayed"], resolutions) == (2, 0, {None})
        versions = {letter["document_id"]: letter["version"] for letter in dead_letters()}
        # One more as it is when the position was deleted in between, and the epochs began again; one that two runs
        # have stored.
        name = exported.dead_letter_table
        letters = spark.table(name)
        earlier = {
            "version": F.lit(1001).cast("long"),
            "epoch": F.lit(500).cast("long"),
            "physical_index": F.lit("was"),
        }
        more = letters.where("document_id = '7'").withColumns(earlier)
        more.unionByName(letters.where("document_id = '8'")).writeTo(name).append()
        take_nan(opensearch, exported.index)
        report = replay_dead_letters(spark, exported)
        found = sorted((letter["document_id"], letter["resolution"]) for letter in dead_letters())
        assert found == [("7", "replayed"), ("7", "superseded"), ("8", "replayed"), ("8", "replayed")]
        assert (report.upserts, report.rejected, report.steps[0]["superseded"]) == (2, 0, 2)  # one of the same two
        assert [indexed()[key] for key in "78"] == [{"id": key, "value": "NaN"} for key in (7, 8)]
        assert {key: opensearch.get(index=exported.index, id=key)["_version"] for key in "78"} == versions
        again = replay_dead_letters(spark, exported)
        assert (again.upserts, again.strategy) == (0, "none")

    def it_lets_what_is_newer_win(self, spark, sql, exported, indexed, dead_letters):
        sql(f"UPDATE {{t}} SET value = {NAN} WHERE id = 8")
        sync_changes(spark, exported)
        sql("UPDATE {t} SET value = 8.5 WHERE id = 8")
        export_table(spark, exported)
        sql(f"UPDATE {{t}} SET value = {NAN} WHERE id IN (7, 9)")
        sync_changes(spark, exported)
        sql("UPDATE {t} SET value = 7.5 WHERE id = 7", "DELETE FROM {t} WHERE id = 9")
        sync_changes(spark, exported)
        report = replay_dead_letters(spark, exported)
        assert (report.upserts, report.rejected, report.steps[0]["superseded"]) == (0, 0, 3)
        assert ("9" in indexed(), indexed()["7"]["value"]) == (False, 7.5)
        assert [letter["resolution"] for letter in dead_letters()] == ["superseded"] * 3

    def it_leaves_those_of_an_index_that_is_kept_for_a_rollback(self, spark, sql, exported, opensearch, indexed):
        sql(f"UPDATE {{t}} SET value = {NAN} WHERE id = 7")
        sync_changes(spark, exported)
        export_table(spark, exported.replace(keep_index="7d"))
        replay_dead_letters(spark, exported)
        rollback_index(spark, exported)
        take_nan(opensearch, exported.index)
        assert replay_dead_letters(spark, exported).upserts == 1
        assert indexed()["7"]["value"] == "NaN"


def store(spark, config):
    """Store a dead letter that is always the same."""
    schema = (
        "document_id string, place string, version long, operation string, document string, status int, reason string"
    )
    rejected = spark.createDataFrame([("7", "", 3, "index", '{"id": 7}', 400, "wrong")], schema)
    result = BulkResult(Counts(rejected=1), dead_letters=[{"document_id": "7", "status": 400, "reason": "wrong"}])
    store_dead_letters(spark, config, Batch("sync", 1, 1, 2, f"{config.index}--1"), "run", result, rejected)


def resolve(spark, config, resolution):
    """Resolve the open dead letters."""
    resolve_dead_letters(spark, config, open_dead_letters(spark, config).withColumn("resolution", F.lit(resolution)))


def it_stores_and_resolves_like_letters_by_themselves(spark, config, dead_letters):
    store(spark, config)
    resolve(spark, config, "superseded")
    store(spark, config)  # as in a cluster that was built again, where epochs and names of indexes recur
    assert open_dead_letters(spark, config).count() == 1
    resolve(spark, config, "replayed")
    assert sorted(letter["resolution"] for letter in dead_letters()) == ["replayed", "superseded"]
    # Those of another table and cluster with an index of the same name.
    other = config.replace(table="lake.ns.other", opensearch_url="http://other:9200")
    for each in (config, other):
        store(spark, each)
    assert [open_dead_letters(spark, each).count() for each in (config, other)] == [1, 1]
    resolve(spark, config, "replayed")
    assert [open_dead_letters(spark, each).count() for each in (config, other)] == [0, 1]
