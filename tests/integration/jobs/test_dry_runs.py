"""A dry run says what the run would do: its figures are those of the run after it."""

from datetime import UTC

import pytest

from icecdc_core import export_table, sync_changes
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import IcecdcError, IndexConflictError, SchemaChangeError
from icecdc_core.jobs import sync
from tests.given.broken_runs import killed_at
from tests.servers.loopback_proxy import cut_off, loopback_proxy

CREATE = """CREATE TABLE {t} (id INT, v STRING) USING iceberg TBLPROPERTIES ('format-version' = '2',
'write.update.mode' = 'copy-on-write', 'write.delete.mode' = 'copy-on-write')"""
FILL = "INSERT INTO {t} SELECT /*+ COALESCE(1) */ CAST(id AS INT), 'v' FROM range(6)"
FIGURES = ("kind", "strategy", "from_snapshot_id", "to_snapshot_id", "upserts", "carryovers_removed", "notes")


def figures(report):
    found = {name: getattr(report, name) for name in (*FIGURES, "snapshots", "steps")}
    # Only the index knows which documents to delete it does not have.
    return {**found, "deletes": report.deletes + report.already_applied}


def foreseen_and_done(spark, config, job=sync_changes):
    foreseen = job(spark, config.replace(dry_run=True))
    assert foreseen.dry_run
    return figures(foreseen), figures(job(spark, config))


def it_counts_what_a_first_sync_reads_from_where_it_starts(spark, sql, make_config, name, snapshots):
    sql(CREATE, FILL, "UPDATE {t} SET v = 'w' WHERE id = 4")
    first, second = snapshots()
    sql("INSERT INTO {t} VALUES (6, 'v')", "DELETE FROM {t} WHERE id < 2")
    times = {row.snapshot_id: row.committed_at for row in sql("SELECT * FROM {t}.snapshots").collect()}
    moment = times[second].replace(tzinfo=times[second].tzinfo or UTC).isoformat()
    starts = {"export": "", "earliest": "earliest", "snapshot": str(first), "time": moment}
    counts = {}
    for label, start in starts.items():
        foreseen, done = foreseen_and_done(spark, make_config(index=f"{name}-{label}", start_from=start))
        assert foreseen == done, label
        counts[label] = done["upserts"], done["deletes"]
    assert counts == {"export": (5, 0), "earliest": (5, 0), "snapshot": (2, 2), "time": (1, 2)}


def it_repeats_a_begun_batch_as_the_run_does(spark, sql, new_index, opensearch):
    config = new_index(CREATE, FILL)
    sql("UPDATE {t} SET v = 'w' WHERE id = 4")
    killed_at(sync, "write_batch", lambda: sync_changes(spark, config))
    sql("UPDATE {t} SET v = 'x' WHERE id = 4", "DELETE FROM {t} WHERE id < 2")
    foreseen, done = foreseen_and_done(spark, config)
    assert (foreseen, len(done["steps"]), done["deletes"]) == (done, 2, 2)
    sql("UPDATE {t} SET v = 'y' WHERE id = 4")
    killed_at(sync, "write_batch", lambda: sync_changes(spark, config))
    foreseen, done = foreseen_and_done(spark, config.replace(settings={"max_result_window": 20000}))
    assert (foreseen, done["upserts"]) == (done, 1)
    # It exports again, or is refused, as the run is.
    config = config.replace(row_filter="id < 5", settings={"max_result_window": 20000})
    for dry_run in (True, False):
        with pytest.raises(SchemaChangeError):
            sync_changes(spark, config.replace(dry_run=dry_run))
    config = config.replace(on_schema_change="reexport", mapping={"v": {"type": "keyword"}})
    foreseen, done = foreseen_and_done(spark, config)
    assert (foreseen, done["strategy"], done["upserts"]) == (done, "reexport", 3)
    assert 'mapping.v.type was "text", is "keyword"' in done["notes"][0]
    opensearch.indices.delete(index=config.positions_index)
    for dry_run in (True, False):
        with pytest.raises(IndexConflictError, match="has documents and no position"):
            sync_changes(spark, config.replace(dry_run=dry_run, start_from="latest"))


def it_goes_on_with_a_begun_export_and_what_came_since_as_the_run_does(spark, sql, make_config, opensearch):
    sql(CREATE)
    for _ in range(3):
        sql(FILL.replace("id AS INT", "6 * (SELECT count(*) FROM {t}) / 6 + id AS INT"))
    config = make_config(export_group_bytes=1, retry_timeout_seconds=0)
    trouble = cut_off(2, kind="_bulk")
    with loopback_proxy(config.opensearch_url, trouble=trouble) as proxy, pytest.raises(IcecdcError):
        export_table(spark, config.replace(opensearch_url=proxy.url))
    assert PositionStore(opensearch, config).read().batch.groups_done == 1
    sql("DELETE FROM {t} WHERE id < 2")
    foreseen, done = foreseen_and_done(spark, config.replace(start_from="latest"))
    assert (foreseen, done["kind"], done["upserts"], done["deletes"]) == (done, "export", 12, 2)
