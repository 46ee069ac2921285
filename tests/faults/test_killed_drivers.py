"""Drivers killed at points that a seed draws, over kinds of tables and jobs: the next run ends with index == table.

All that a run leaves behind, it leaves through requests to OpenSearch, so most kills are around one of them. One kill
in `make test`; `make test SUITE=faults` sets more with ICECDC_FAULTS.
"""

import os
import random
import threading
import time

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from tests.faults.processes import Job
from tests.faults.tables import SEED, rows_as_documents
from tests.loopback_proxy import Act, loopback_proxy
from tests.nested_shop import KINDS as PROPERTIES, Shop

KILLS = int(os.environ.get("ICECDC_FAULTS", "1"))
JOBS = ("sync", "sync", "export", "validate")
_MERGE_ON_READ = "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read'"
KINDS = {
    "v2 copy-on-write": "USING iceberg TBLPROPERTIES ('format-version' = '2')",
    "v2 merge-on-read": f"USING iceberg TBLPROPERTIES ('format-version' = '2', {_MERGE_ON_READ})",
    "v3 merge-on-read": f"USING iceberg TBLPROPERTIES ('format-version' = '3', {_MERGE_ON_READ})",
    "v2 partitioned": "USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '2')",
    "v1 copy-on-write": "USING iceberg TBLPROPERTIES ('format-version' = '1')",
}


def change(spark, table, rng):
    for _ in range(rng.randint(1, 3)):
        modulus, rest, start = rng.randint(3, 9), rng.randint(0, 2), rng.randint(100, 100_000)
        statements = (
            f"UPDATE {table} SET name = 'u{start}' WHERE id % {modulus} = {rest}",
            f"DELETE FROM {table} WHERE id % {modulus + 9} = {rest}",
            f"MERGE INTO {table} t USING (SELECT id + {start} AS id FROM range({modulus})) s ON t.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET name = 'm' WHEN NOT MATCHED THEN INSERT (id, name, part) "
            f"VALUES (s.id, 'm{start}', s.id % 3)",
            f"UPDATE {table} SET part = (part + 1) % 3 WHERE id % {modulus} = {rest}",
        )
        spark.sql(rng.choice(statements))


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


class DescribeKilledDrivers:
    @pytest.mark.parametrize("trial", range(KILLS))
    def it_ends_equal_after_every_kill(self, spark, sql, make_config, indexed, opensearch, tmp_path, trial):
        rng, config = random.Random(f"{SEED} {trial}"), make_config(export_group_bytes=1)
        job, kind = rng.choice(JOBS), rng.choice(list(KINDS))
        sql(f"CREATE TABLE {{t}} (id BIGINT, name STRING, part BIGINT) {KINDS[kind]}")
        for number in range(3):
            sql(f"INSERT INTO {{t}} SELECT id + {number * 20}, concat('n', id), id % 3 FROM range(20)")
        export_table(spark, config)
        change(spark, config.table, rng)
        if job == "validate":
            # The killed run is a repair, so it gets a document to remove.
            sync_changes(spark, config)
            opensearch.index(index=config.index, id="foreign", body={"id": -1})
        where = killed(job, config.replace(repair=job == "validate"), rng, tmp_path)
        if rng.random() < 0.5:
            change(spark, config.table, rng)
        sync_changes(spark, config)
        if job == "validate":
            validate_table(spark, config.replace(repair=True))
        print(f"seed {SEED}, {trial}: {job} of {kind}, killed {where}")
        assert indexed() == rows_as_documents(spark, config.table)

    @pytest.mark.long
    @pytest.mark.parametrize("trial", range(KILLS))
    def it_ends_equal_for_documents_of_several_tables(self, spark, name, new_index, indexed, tmp_path, trial):
        rng, shop = random.Random(f"{SEED} nested {trial}"), Shop(spark, name, *PROPERTIES)
        shop.fill()
        config = new_index(**shop.spec, export_group_bytes=1)
        changes = [shop.change(rng) for _ in range(3)]
        job = rng.choice(["sync", "sync", "export"])
        where = killed(job, config, rng, tmp_path)
        if rng.random() < 0.5:
            changes.append(shop.change(rng))
        sync_changes(spark, config)
        print(f"seed {SEED}, {trial}: {job}, killed {where}; {'; '.join(changes)}")
        assert indexed() == shop.documents()
        shop.drop()
