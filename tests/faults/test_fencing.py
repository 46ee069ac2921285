"""Several runs at once, and runs that continue late: a late run changes nothing, within the limits shown here."""

from __future__ import annotations

import json
import threading
import time

import pytest

from icecdc_core import sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import FencedError, IcecdcError
from icecdc_core.opensearch.bulk import BulkWriter
from icecdc_core.opensearch.client import Connection
from icecdc_core.opensearch.indexes import write_alias
from tests.broken_runs import move_elsewhere
from tests.bulk_writes import write
from tests.faults.test_opensearch_faults import CREATE, FILL
from tests.loopback_proxy import Act, loopback_proxy


@pytest.fixture
def config(make_config):
    """The lock of a holder elsewhere expires after a second."""
    return make_config(lease_seconds=1)


class DescribeAZombie:
    def it_changes_nothing_when_it_wakes_up_after_others_finished(
        self, spark, sql, exported, equal, opensearch, opensearch_url
    ):
        stalled, awake = threading.Event(), threading.Event()
        outcome = []

        def trouble(method, path, body):
            if "_bulk" in path:
                stalled.set()
            if stalled.is_set():
                awake.wait(300)  # the whole process sleeps: its lease is not renewed either

        def run():
            with loopback_proxy(opensearch_url, trouble=trouble) as proxy:
                try:
                    outcome.append(sync_changes(spark, exported.replace(opensearch_url=proxy.url)))
                except IcecdcError as error:
                    outcome.append(error)

        zombie = threading.Thread(target=run)
        zombie.start()
        assert stalled.wait(120)
        move_elsewhere(opensearch, exported)
        sync_changes(spark, exported)
        sql("DELETE FROM {t} WHERE id % 5 = 0")
        sql("UPDATE {t} SET name = 'newest' WHERE id % 7 = 0")
        sync_changes(spark, exported)
        before = PositionStore(opensearch, exported).read()
        awake.set()
        zombie.join(120)
        after = PositionStore(opensearch, exported).read()
        assert (type(outcome[0]), after, equal(exported)) == (FencedError, before, True)


class DescribeALateWriter:
    def action(self, identity, epoch):
        head = {"index": {"_id": identity, "version": 2 * epoch + 1, "version_type": "external"}}
        return json.dumps(head) + "\n" + json.dumps({"id": int(identity), "name": "old"}) + "\n"

    def settings(self, opensearch, config):
        physical = PositionStore(opensearch, config).read().physical_index
        return BulkWriter(Connection(config.opensearch_url), write_alias(physical), 4096, 1, 5.0, 0), physical

    def it_restores_no_document_while_tombstones_exist(self, spark, exported, opensearch, equal):
        sync_changes(spark, exported)
        settings, _ = self.settings(opensearch, exported)
        result = write(settings, self.action("0", 1))
        assert (result.counts.already_applied, equal(exported)) == (1, True)

    def it_can_restore_a_document_after_tombstones_expired_and_a_repair_removes_it(
        self, spark, exported, opensearch, equal
    ):
        sync_changes(spark, exported)
        settings, physical = self.settings(opensearch, exported)
        opensearch.indices.put_settings(index=physical, body={"index.gc_deletes": "1ms"})
        opensearch.indices.refresh(index=physical)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            # The index forgets on its own time, when it is written to or refreshed.
            result = write(settings, self.action("0", 1))
            if result.counts.upserts:
                break
            time.sleep(0.5)
            opensearch.indices.refresh(index=physical)
        found = validate_table(spark, exported)
        repaired = validate_table(spark, exported.replace(repair=True))
        assert (result.counts.upserts, found.extra_ids, repaired.ok, equal(exported)) == (1, ["0"], True, True)


class DescribeALostAnswer:
    def it_recognizes_its_own_earlier_write(self, spark, exported, equal, opensearch_url):
        left = [3]

        def trouble(method, path, body):
            if "_doc/position" in path and method == "PUT" and left:
                left.pop()
                return Act.RESET_AFTER
            return None

        with loopback_proxy(opensearch_url, trouble=trouble) as proxy:
            sync_changes(spark, exported.replace(opensearch_url=proxy.url))
        assert (left, equal(exported)) == ([], True)

    def it_does_not_block_the_next_poll_of_the_process(self, spark, exported, equal, opensearch_url):
        left = [1]

        def trouble(method, path, body):
            """From the first bulk request on nothing gets through, not even giving the table back."""
            if "_bulk" in path and left:
                left.pop()
            return None if left else Act.RESET

        with loopback_proxy(opensearch_url, trouble=trouble) as proxy, pytest.raises(IcecdcError):
            sync_changes(spark, exported.replace(opensearch_url=proxy.url, retry_timeout_seconds=0.5))
        sync_changes(spark, exported)
        assert equal(exported)


class DescribeTablesSideBySide:
    def it_keeps_different_tables_apart(self, spark, exported, make_config, equal, name):
        other = make_config(table=f"lake.ns.{name}_b", index=f"{name}-b", positions_index=exported.positions_index)
        spark.sql(CREATE.replace("{t}", other.table))
        spark.sql(FILL.replace("{t}", other.table))
        errors = []

        def run(config):
            try:
                sync_changes(spark, config)
            except IcecdcError as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(config,)) for config in (exported, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        result = (errors, equal(exported), equal(other))
        spark.sql(f"DROP TABLE {other.table}")
        assert result == ([], True, True)
