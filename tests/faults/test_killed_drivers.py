"""Drivers killed at points that a seed draws, over kinds of tables and jobs: the next run ends with index == table.

All that a run leaves behind, it leaves through requests to OpenSearch, so most kills are around one of them. One kill
in `make test`; `make test SUITE=faults` sets more with ICECDC_FAULTS.
"""

import os
import random
import threading
import time
from functools import partial

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from tests.faults.processes import Job
from tests.faults.tables import KINDS, SEED, change_some, rows_as_documents
from tests.given.nested_shop import KINDS as PROPERTIES, Shop
from tests.servers.loopback_proxy import Act, loopback_proxy

KILLS = int(os.environ.get("ICECDC_FAULTS", "1"))
JOBS = ("sync", "sync", "export", "validate")


def killed(job, config, rng, tmp_path):
    """Start a job and kill it around a request, before or after the server did it, or at any moment; says where."""
    number, after, seconds = rng.randint(1, 24), rng.random() < 0.5, rng.uniform(0.05, 6)
    at_any_moment, requests, places = rng.random() < 1 / 3, [], []

    def trouble(method, path, body):
        requests.append(f"{method} {path.partition('?')[0]}")
        if at_any_moment or len(requests) < number:
            return None
        if len(requests) > number:
            return Act.RESET
        places.append(f"{'after' if after else 'before'} {requests[-1]}")
        if after:
            # The server does it, and nobody is there for the answer.
            threading.Timer(0.2, process.kill).start()
            return Act.RESET_AFTER
        process.kill()
        return Act.RESET

    with loopback_proxy(config.opensearch_url, trouble=trouble) as proxy:
        process = Job(job, config.replace(opensearch_url=proxy.url), tmp_path / "report.json")
        if at_any_moment:
            process.await_log('"run started"')
            time.sleep(seconds)
            places += [] if process.process.poll() is not None else [f"at some moment, after {requests[-1:]}"]
            process.kill()
        process.process.wait(120)
    return places[0] if places else "ended"


@pytest.mark.parametrize("of_several_tables", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("trial", [*range(KILLS), pytest.param("rollback", marks=pytest.mark.long)])
def it_ends_equal_after_every_kill(
    spark, sql, make_config, name, indexed, opensearch, tmp_path, trial, of_several_tables
):
    rng, config = random.Random(f"{SEED} {trial} {of_several_tables}"), make_config(export_group_bytes=1)
    job, kind = trial if trial == "rollback" else rng.choice(JOBS), rng.choice(list(KINDS))
    if of_several_tables:
        shop, kind = Shop(spark, name, *PROPERTIES), "several tables"
        config, documents = config.replace(**shop.spec), shop.documents
    else:
        sql(f"CREATE TABLE {{t}} (id BIGINT, name STRING, part BIGINT) {KINDS[kind]}")
        sql("INSERT INTO {t} SELECT id, concat('n', id), id % 3 FROM range(0, 60, 1, 3)")
        documents = partial(rows_as_documents, spark, config.table)
    export_table(spark, config)

    def change():
        for _ in range(rng.randint(1, 3)):
            print(shop.change(rng) if of_several_tables else change_some(spark, config.table, rng))

    change()
    if job == "rollback":
        export_table(spark, config.replace(keep_index="7d"))
        change()
    if job == "validate":
        # The killed run is a repair, so it gets a document to remove.
        sync_changes(spark, config)
        opensearch.index(index=config.index, id="foreign", body={"film_id" if of_several_tables else "id": -1})
    where = killed(job, config.replace(repair=job == "validate"), rng, tmp_path)
    if rng.random() < 0.5:
        change()
    sync_changes(spark, config)
    if job == "validate":
        validate_table(spark, config.replace(repair=True))
    print(f"seed {SEED}, {trial}: {job} of {kind}, killed {where}")
    assert indexed() == documents()
    if of_several_tables:
        shop.drop()
