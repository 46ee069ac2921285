"""Runs that meet another run at the worst moment, as the model of the protocol and the simulation found them."""

import threading
import time
from types import SimpleNamespace
from unittest import mock

import pytest
from opensearchpy import RequestError

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import FencedError, IcecdcError, OpenSearchRequestError, TableLockedError
from icecdc_core.jobs import sync, validate
from icecdc_core.opensearch import indexes
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs import batch
from icecdc_core.runs.run import Run
from tests.faults.tables import CREATE
from tests.given.broken_runs import end_lease, killed_at


@pytest.fixture
def config(new_index):
    return new_index(CREATE, "INSERT INTO {t} VALUES (1, 'v')")


@pytest.fixture
def names(indexed):
    return lambda: {identity: document["name"] for identity, document in sorted(indexed().items())}


def it_repairs_nothing_when_a_sync_committed_after_the_comparison(spark, sql, config, names, opensearch, just_before):
    sql("INSERT INTO {t} VALUES (2, 'b')")
    physical = PositionStore(opensearch, config).read().physical_index
    opensearch.index(index=physical, id="9", body={"name": "extra"}, refresh=True)
    spark.catalog.clearCache()
    just_before(validate, "repair_differences", lambda: sync_changes(spark, config))
    with pytest.raises(TableLockedError, match="Another run wrote"):
        validate_table(spark, config.replace(repair=True))
    assert ("2" in names(), spark._jsparkSession.sharedState().cacheManager().isEmpty()) == (True, True)

    # It waits until a begun sync is finished.
    sql("INSERT INTO {t} VALUES (3, 'c')")
    killed_at(sync, "commit_batch", lambda: sync_changes(spark, config))
    with pytest.raises(TableLockedError, match=r"A begun sync .* sync first"):
        validate_table(spark, config.replace(repair=True))
    sync_changes(spark, config)
    assert validate_table(spark, config.replace(repair=True)).ok


def it_validates_the_index_as_it_is_between_two_batches(spark, sql, config):
    looked, commit, pauses = Run.require_position, sync.commit_batch, []
    wrote, may_commit = threading.Event(), threading.Event()

    def commit_late(*arguments):
        if threading.current_thread() is late:
            wrote.set()
            assert may_commit.wait(60)
        commit(*arguments)

    def overtaken(run, *arguments, **options):
        looked(run, *arguments, **options)
        if not wrote.is_set():  # one sync has ended when it opens the index, and one has written and not committed
            sql("INSERT INTO {t} VALUES (2, 'b')")
            sync_changes(spark, config)
            sql("UPDATE {t} SET name = 'w'")
            late.start()
            assert wrote.wait(60)

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            may_commit.set()

    late = threading.Thread(target=lambda: sync_changes(spark, config))
    with (
        mock.patch.object(Run, "require_position", overtaken),
        mock.patch.object(sync, "commit_batch", commit_late),
        mock.patch.object(validate, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause)),
    ):
        report = validate_table(spark, config)
    late.join()
    assert (report.ok, report.snapshot_id, len(pauses) > 1) == (True, report.position_snapshot_id, True)


def it_finds_nothing_left_to_sync_when_another_run_overtakes(spark, sql, make_config, names, just_before):
    sql(CREATE, "INSERT INTO {t} VALUES (1, 'v')")
    config = make_config(start_from="earliest")
    just_before(Run, "lock", lambda: sync_changes(spark, config))
    assert (sync_changes(spark, config).strategy, names()) == ("none", {"1": "v"})
    # Now that the index is there.
    sql("INSERT INTO {t} VALUES (2, 'b')")

    def overtake():
        sql("INSERT INTO {t} VALUES (3, 'c')")
        sync_changes(spark, config)

    just_before(Run, "lock", overtake)
    report = sync_changes(spark, config.replace(on_history_gap="reexport"))
    assert (report.strategy, names()) == ("none", {"1": "v", "2": "b", "3": "c"})


def it_leaves_one_index_if_its_first_sync_dies_before_the_position(spark, sql, make_config, names, opensearch):
    sql(CREATE, "INSERT INTO {t} VALUES (1, 'v')")
    config = make_config(start_from="latest")
    killed_at(batch, "position_at", lambda: sync_changes(spark, config))
    (abandoned,) = opensearch.indices.get_alias(name=config.index)
    # There is nothing new, and yet nothing of the index that readers saw for a while is left.
    sync_changes(spark, config)
    physical = PositionStore(opensearch, config).read().physical_index
    assert physical != abandoned
    assert list(opensearch.indices.get(index=f"{config.index}--*")) == [physical]
    sql("INSERT INTO {t} VALUES (2, 'w')")
    sync_changes(spark, config)
    assert names() == {"2": "w"}


def it_does_not_move_the_alias_back_after_a_stall(spark, sql, config, opensearch, just_before):
    def overtake():
        end_lease(opensearch, config)
        sql("UPDATE {t} SET name = 'w'")
        export_table(spark, config.replace(export_group_bytes=1))

    just_before(indexes, "publish_index", overtake)
    with pytest.raises(FencedError):
        export_table(spark, config)
    (physical,) = opensearch.indices.get_alias(name=config.index)
    assert PositionStore(opensearch, config).read().physical_index == physical
    assert validate_table(spark, config.replace(validate_at="position")).ok


def it_leaves_everything_as_it_is_when_the_index_of_an_export_is_refused(spark, sql, config, names, opensearch):
    def existing():
        return sorted(opensearch.indices.get(index=f"{config.index}--*", expand_wildcards="all"))

    def refused(*arguments, **more):
        create(*arguments, **more)
        raise RequestError(400, "validation_exception", "maximum shards open")

    before, create = existing(), indexes.create_suffixed
    with pytest.raises(OpenSearchRequestError, match="maximum shards open"):
        export_table(spark, config.replace(number_of_shards=1024))
    with mock.patch.object(indexes, "create_suffixed", refused), pytest.raises(OpenSearchRequestError):
        export_table(spark, config.replace(index_column="name"))
    assert existing() == before
    # The sync goes on from where the index is.
    sql("UPDATE {t} SET name = 'w'")
    assert (sync_changes(spark, config).kind, names()) == ("sync", {"1": "w"})


def it_changes_nothing_when_it_repeats_a_batch(spark, sql, config, names):
    sql("UPDATE {t} SET name = 'w'", "INSERT INTO {t} VALUES (2, 'b')")
    killed_at(sync, "commit_batch", lambda: sync_changes(spark, config))
    again = sync_changes(spark, config)
    assert (again.upserts, again.already_applied, names()) == (0, 2, {"1": "w", "2": "b"})
    # One that is not repeated is undone, although the batch after it is killed, too.
    sql("UPDATE {t} SET name = 'x' WHERE id = 1")
    killed_at(sync, "commit_batch", lambda: sync_changes(spark, config))
    sql("UPDATE {t} SET name = 'w' WHERE id = 1")
    other = config.replace(on_duplicate_identifier="last")
    killed_at(sync, "write_batch", lambda: sync_changes(spark, other))
    sync_changes(spark, other)
    assert names() == {"1": "w", "2": "b"}


def it_ends_equal_when_two_really_run_side_by_side(spark, sql, config, names):
    outcomes = []

    def run():
        try:
            outcomes.append(sync_changes(spark, config))
        except IcecdcError as error:
            outcomes.append(error)

    sql("INSERT INTO {t} VALUES (2, 'b')")
    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = {type(outcome) for outcome in outcomes}
    assert (RunReport in kinds, kinds <= {RunReport, TableLockedError}) == (True, True), outcomes
    assert names() == {"1": "v", "2": "b"}
