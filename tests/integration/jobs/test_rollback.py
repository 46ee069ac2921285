"""A rollback: readers see the index from before the last export again, and the next sync brings it up to date."""

import pytest

from icecdc_core import export_table, rollback_index, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.config.sync import StatusConfig
from icecdc_core.errors import HistoryGapError, IcecdcError, IndexNotFoundError, SchemaChangeError
from icecdc_core.opensearch.indexes import trial_index, write_alias
from tests.servers.loopback_proxy import cut_off, loopback_proxy

NEW = {"select": ["id", "upper(name) AS loud"]}


@pytest.fixture
def config(new_index):
    rows = "INSERT INTO {t} SELECT id, concat('n', id) FROM range(6)"
    return new_index("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg", rows, keep_index="7d")


@pytest.fixture
def physical_indexes(opensearch, config):
    return lambda: sorted(opensearch.indices.get(index=f"{config.index}--*"))


def it_shows_the_earlier_documents_again_and_syncs_them(spark, sql, config, indexed, physical_indexes):
    sql("DELETE FROM {t} WHERE id = 5")
    export_table(spark, config.replace(**NEW))
    sql("UPDATE {t} SET name = 'changed' WHERE id = 1", "DELETE FROM {t} WHERE id = 2")
    sync_changes(spark, config.replace(**NEW))
    sql("DELETE FROM {t} WHERE id = 3", "INSERT INTO {t} VALUES (2, 'back')")
    names, requests = ("index", "positions_index", "warehouse", "catalog_properties"), []
    with loopback_proxy(config.opensearch_url, record=lambda *seen: requests.append(seen[1])) as proxy:
        of_index = StatusConfig(opensearch_url=proxy.url, **{name: getattr(config, name) for name in names})
        assert rollback_index(spark, of_index).table == config.table
    assert [path for path in requests if "_aliases" in path] == ["/_aliases"]
    assert indexed() == {str(number): {"id": number, "name": f"n{number}"} for number in range(6)}
    with pytest.raises(SchemaChangeError, match="select"):
        sync_changes(spark, config.replace(**NEW))
    sync_changes(spark, config)
    assert indexed() == {str(row.id): row.asDict() for row in spark.table(config.table).collect()}
    assert (len(physical_indexes()), validate_table(spark, config).ok) == (1, True)


def it_repeats_a_batch_that_broke_off_before_the_export(spark, sql, config, indexed):
    sql("DELETE FROM {t} WHERE id = 5")
    with loopback_proxy(config.opensearch_url, trouble=cut_off(1, True, "_bulk")) as proxy, pytest.raises(IcecdcError):
        sync_changes(spark, config.replace(opensearch_url=proxy.url, retry_timeout_seconds=0))
    export_table(spark, config.replace(**NEW))
    sql("INSERT INTO {t} VALUES (5, 'n5')")  # as it was: no later snapshot shows that the document is gone
    rollback_index(spark, config)
    assert len(indexed()) == 5
    sync_changes(spark, config)
    assert len(indexed()) == 6


def it_refuses_an_index_that_no_sync_can_bring_up_to_date(spark, sql, config, opensearch, physical_indexes):
    sql("DELETE FROM {t} WHERE id = 5")
    export_table(spark, config)
    sql(f"CALL lake.system.expire_snapshots(table => 'ns.{config.index}', older_than => now())")
    with pytest.raises(HistoryGapError, match="on_history_gap=reexport"):
        rollback_index(spark, config)
    allowed, position = config.replace(on_history_gap="reexport"), PositionStore(opensearch, config).read()
    assert "next sync exports" in rollback_index(spark, allowed.replace(dry_run=True)).notes[1]
    kept = physical_indexes()[0]
    for spoil in (opensearch.indices.close, opensearch.indices.delete):
        spoil(index=kept)
        with pytest.raises(IndexNotFoundError, match="or it was deleted or closed"):
            rollback_index(spark, allowed)
    assert PositionStore(opensearch, config).read() == position


def it_leaves_a_trial_index_and_those_of_an_index_whose_name_begins_as_this_one(spark, sql, config, opensearch):
    other = config.replace(index=f"{config.index}--eu")
    for each in (other, config):
        export_table(spark, each)
    with trial_index(opensearch, config, spark.table(config.table).schema) as trial:
        rollback_index(spark, config)
        assert opensearch.indices.exists_alias(name=write_alias(trial))
    sql("DELETE FROM {t} WHERE id = 5")
    assert sync_changes(spark, other).deletes == 1


def it_needs_no_table(spark, sql, config, indexed):
    export_table(spark, config.replace(**NEW))
    sql("DROP TABLE {t}")
    assert "is not known" in rollback_index(spark, config).notes[1]
    assert indexed()["1"] == {"id": 1, "name": "n1"}


def it_keeps_an_index_no_longer_than_asked(spark, sql, config, physical_indexes):
    export_table(spark, config.replace(keep_index="100ms"))
    kept = len(physical_indexes())
    sql("DELETE FROM {t} WHERE id = 5")
    sync_changes(spark, config)
    assert (kept, len(physical_indexes())) == (2, 1)
