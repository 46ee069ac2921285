"""OpenSearch fails during a run: the run ends in sync, or with a typed error and a correct position."""

import itertools
import os
import random
import re
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import psutil
import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.commits.position import FORMAT
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import (
    IcecdcError,
    IndexNotFoundError,
    OpenSearchRequestError,
    OpenSearchUnreachableError,
    PositionError,
)
from icecdc_core.jobs.status import status
from tests.faults.tables import CREATE, FILL, change
from tests.servers.loopback_proxy import Act, at_first, cut_off, loopback_proxy

BUSY = {"error": {"type": "es_rejected_execution_exception", "reason": "made by the test"}}
FAULTS = (
    Act.RESET,
    Act.RESET_AFTER,
    Act.STALL,
    Act.SLOW,
    (503, BUSY),
    (200, b'{"message":"ok"}'),
    (404, b"<html>Not found</html>", "text/html"),
)
# By default every kind of request meets one of the faults, with `make test SUITE=faults` each of them.
ROUNDS = len(FAULTS) if "ICECDC_FAULTS" in os.environ else 1


@pytest.fixture
def config(make_config, monkeypatch):
    # The driver's pauses between attempts are short.
    monkeypatch.setattr(random, "uniform", lambda *_: 0.1)
    return make_config(request_timeout_seconds=1, retry_timeout_seconds=30, bulk_bytes=1024)


@pytest.mark.parametrize("number", range(ROUNDS))
def it_ends_in_sync_though_every_request_meets_it_once(spark, sql, config, equal, opensearch_url, number):
    sql(CREATE, FILL)
    met, faults = set(), itertools.islice(itertools.cycle(FAULTS), number, None)

    def trouble(method, path, body):
        kind = method, re.sub(r"[0-9a-f-]{8,}|\d+", "", path.partition("?")[0])
        # The very first request is not retried, so that a wrong URL fails at once.
        if path == "/" or kind in met:
            return None
        met.add(kind)
        return next(faults)

    with loopback_proxy(opensearch_url, trouble=trouble) as proxy:
        through = config.replace(opensearch_url=proxy.url)
        export_table(spark, through)
        change(sql)
        sync_changes(spark, through)
        valid = validate_table(spark, through).ok
    assert (equal(config), valid, len(met) > 14) == (True, True, True)


def it_waits_for_a_while_blames_no_document_and_ends_in_sync_the_next_time(
    spark, sql, exported, opensearch, equal, opensearch_url
):
    (physical,) = opensearch.indices.get_alias(name=exported.index)
    short = exported.replace(retry_timeout_seconds=0.5, max_rejected_documents=1000)
    before = PositionStore(opensearch, exported).read()

    @contextmanager
    def out_of_disk_space():
        block = "index.blocks.read_only_allow_delete"
        opensearch.indices.put_settings(index=physical, body={block: True})
        yield opensearch_url
        opensearch.indices.put_settings(index=physical, body={block: None})

    @contextmanager
    def closed():
        opensearch.indices.close(index=physical)
        yield opensearch_url
        opensearch.indices.open(index=physical)
        opensearch.cluster.health(index=physical, wait_for_status="yellow")

    @contextmanager
    def away():
        with loopback_proxy(opensearch_url, trouble=cut_off(1, kind="_bulk")) as proxy:
            yield proxy.url

    for trouble, error, says in (
        (closed, OpenSearchRequestError, "index_closed_exception"),
        (out_of_disk_space, IcecdcError, r"(?i)flood|disk|block"),
        (away, OpenSearchUnreachableError, "Remedy"),
    ):
        begin = time.monotonic()
        with trouble() as url, pytest.raises(error, match=says) as caught:
            sync_changes(spark, short.replace(opensearch_url=url))
        assert time.monotonic() - begin < 120
        assert type(caught.value).__name__ != "RejectedDocumentsError"
        after = PositionStore(opensearch, exported).read()
        assert (after.snapshot_id, after.batch is not None or trouble is closed) == (before.snapshot_id, True), says
    assert (sync_changes(spark, exported).epoch, equal(exported)) == (after.batch.epoch, True)
    change(sql)

    def delete():
        opensearch.indices.delete(index=physical)

    with (
        loopback_proxy(opensearch_url, trouble=at_first("_bulk", delete)) as proxy,
        pytest.raises(IndexNotFoundError, match="run the export again"),
    ):
        sync_changes(spark, exported.replace(opensearch_url=proxy.url))
    assert not opensearch.indices.exists(index=physical)
    export_table(spark, exported)
    assert equal(exported)


def it_refuses_a_position_of_a_newer_release_by_name(spark, exported, opensearch):
    where = {"index": exported.positions_index, "id": f"position:{exported.index}"}
    source = opensearch.get(**where)["_source"]
    opensearch.index(**where, body={**source, "format": FORMAT + 1}, params={"refresh": "true"})
    for job in (export_table, sync_changes, validate_table):
        with pytest.raises(PositionError, match=f"has format {FORMAT + 1}"):
            job(spark, exported)
    (found,) = status(spark, exported).indexes
    assert f"has format {FORMAT + 1}" in found.problem
    # One that icecdc did not create.
    opensearch.indices.delete(index=where["index"])
    opensearch.index(index=where["index"], id="x", body={"type": "commit", "index": exported.index})
    with pytest.raises(PositionError, match="icecdc did not create the positions index"):
        export_table(spark, exported)


@pytest.mark.long
def it_ends_in_sync_though_the_server_is_killed(spark, sql, config, tmp_path):
    from icecdc_core.local import running_opensearch
    from icecdc_core.local.opensearch import candidate_ports
    from icecdc_core.local.server import free_ports

    place = {"data_folder": tmp_path / "data", "port": next(free_ports(candidate_ports())), "heap": "512m"}
    valid = []
    # The first server's end is an error, because it was killed.
    with ExitStack() as second, suppress(IcecdcError), running_opensearch(**place) as url:
        start_again = threading.Thread(target=lambda: second.enter_context(running_opensearch(**place)))

        def kill():
            for process in psutil.process_iter(["cmdline"]):
                command = process.info["cmdline"] or [""]
                if "java" in command[0] and {"-baseHttpPort", str(place["port"] - 1)} <= {*command}:
                    process.kill()
            start_again.start()

        own = config.replace(opensearch_url=url, retry_timeout_seconds=240)
        sql(CREATE, FILL)
        export_table(spark, own)
        change(sql)
        with loopback_proxy(url, trouble=at_first("_bulk", kill)) as proxy:
            sync_changes(spark, own.replace(opensearch_url=proxy.url))
        start_again.join()
        valid.append(validate_table(spark, own).ok)
    assert valid == [True]
