"""A repair mends what others did to an index in one run, whatever versions they left there, and spoils nothing."""

import pytest

from icecdc_core import export_table, replay_dead_letters, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import DocumentVersionError, RejectedDocumentsError

CREATE = "CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"
HIGHEST = 2**63 - 2


@pytest.fixture
def exported(new_index):
    insert = "INSERT INTO {t} SELECT id, concat('n', id) FROM range(20)"
    return new_index(CREATE, insert, number_of_shards=2)


def repaired(spark, config):
    return validate_table(spark, config.replace(repair=True))


def write(opensearch, index, identity, version, name="foreign"):
    params = {"version": version, "version_type": "external"}
    opensearch.index(index=index, id=identity, body={"id": int(identity), "name": name}, params=params)


def delete(opensearch, index, identity, version):
    opensearch.delete(index=index, id=identity, params={"version": version, "version_type": "external"})


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
        write(opensearch, exported.index, "99", 200)
        for routing in ("x", "y"):  # one in each shard
            opensearch.index(index=exported.index, id="98", body={"id": 98}, routing=routing)
        report = repaired(spark, exported)
        assert (report.ok, report.repaired, indexed()) == (True, 6, before)
        sql("UPDATE {t} SET name = 'later' WHERE id IN (7, 1)")
        sync_changes(spark, exported)
        assert validate_table(spark, exported).ok

        # A column that no sync has seen.
        sql("ALTER TABLE {t} ADD COLUMN added INT")
        opensearch.delete(index=exported.index, id="3", refresh=True)
        assert repaired(spark, exported).ok
        assert indexed()["3"] == {"id": 3, "name": "n3", "added": None}
        sync_changes(spark, exported)
        assert validate_table(spark, exported).ok

        # A sync that meets the version of somebody else keeps a dead letter until a repair, or fails; its remedy helps.
        config = exported.replace(max_rejected_documents=1, dead_letter_table=f"lake.ns.dead_letters_{name}")
        none = {"letters": 1, "replayed": 0, "superseded": 0, "rejected": 0}
        write(opensearch, config.index, "5", 50_000)
        sql("DELETE FROM {t} WHERE id = 5")
        report = sync_changes(spark, config)
        assert (report.rejected, report.already_applied) == (1, 0)
        assert replay_dead_letters(spark, config).steps == [none | {"rejected": 1}]
        assert not validate_table(spark, config).ok
        assert repaired(spark, config).ok
        assert replay_dead_letters(spark, config).steps == [none | {"replayed": 1}]
        spark.sql(f"DROP TABLE {config.dead_letter_table}")
        write(opensearch, exported.index, "8", HIGHEST)
        sql("UPDATE {t} SET name = 'later' WHERE id = 8")
        with pytest.raises(RejectedDocumentsError, match=f"'8'.*version {HIGHEST}.*Remedy: .*run the export"):
            sync_changes(spark, exported)
        export_table(spark, exported)
        assert validate_table(spark, exported).ok


@pytest.mark.long
def it_names_a_version_that_nothing_is_above_and_spoils_no_position(spark, sql, exported, opensearch, indexed):
    for identity, version in (("7", HIGHEST), ("999", 2**60)):  # a document that is stale, and one that is extra
        before = PositionStore(opensearch, exported).read()
        write(opensearch, exported.index, identity, version)
        with pytest.raises(DocumentVersionError, match=f"(?s)'{identity}'.*{version}.*run the export"):
            repaired(spark, exported)
        after = PositionStore(opensearch, exported).read()
        sql("UPDATE {t} SET name = concat(name, '!') WHERE id = 8")
        sync_changes(spark, exported)
        synced = indexed()["8"]
        export_table(spark, exported)
        assert (after, synced["name"][-1], validate_table(spark, exported).ok) == (before, "!", True)
    # One that was deleted.
    delete(opensearch, exported.index, "7", HIGHEST)
    with pytest.raises(DocumentVersionError, match=f"'7'.*{HIGHEST}"):
        repaired(spark, exported)
    epoch = PositionStore(opensearch, exported).read().epoch
    sync_changes(spark, exported)
    export_table(spark, exported)
    assert (epoch < 100, validate_table(spark, exported).ok) == (True, True)
