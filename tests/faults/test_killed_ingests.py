"""Ingests killed or stopped at random moments, and brokers that restart: afterwards tables equal what was produced.

One kill in SUITE=long; `make test SUITE=faults` sets more with ICECDC_FAULTS. ICECDC_SEED chooses other moments.
"""

import os
import random
import threading
import time
from collections import Counter

import pytest

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest import ingest
from icecdc_core.local.kafka import running_kafka
from tests.faults.processes import Job
from tests.faults.tables import SEED
from tests.given.kafka_topics import Topic

KILLS = int(os.environ.get("ICECDC_FAULTS", "1"))
# How tables are chosen and written; some records of the first two are dead letters.
KINDS = {
    "append": {},
    "routes": {"route_by": "field", "route_field": "kind"},
    "upsert": {"mode": "upsert", "identifier_columns": "id", "op_field": "op"},
}


class World:
    """What was produced, and the rows and dead letters that it must become."""

    def __init__(self, kind, topic, rng):
        self.kind, self.topic, self.rng = kind, topic, rng
        self.rows, self.dead_letters, self.produced = Counter(), 0, 0

    def produce(self, count):
        for _ in range(count):
            self.produced += 1
            value, table = self.rng.randrange(1000), self.rng.choice("abc") if self.kind == "routes" else "t"
            if self.kind == "upsert":
                # Few keys, whose rows are updated and deleted.
                key, gone = self.rng.randrange(30), self.rng.random() < 0.2
                self.topic.send({"id": key, "op": "d"} if gone else {"id": key, "v": value, "op": "u"})
                self.rows = Counter({row: times for row, times in self.rows.items() if row[1] != key})
                if not gone:
                    self.rows["t", key, value] = 1
            elif self.rng.random() < 0.02:  # without a table, or no JSON at all
                self.topic.send({"id": self.produced} if self.kind == "routes" else b"no json")
                self.dead_letters += 1
            else:
                self.topic.send({"id": self.produced, "v": value, "kind": table})
                self.rows[table, self.produced, value] += 1


@pytest.mark.long
@pytest.mark.parametrize("trial", range(KILLS))
def it_ends_with_every_record_once_after_every_kill(spark, make_ingest, kafka, name, tmp_path, trial):
    rng, kind = random.Random(f"{SEED} {trial}"), list(KINDS)[trial % len(KINDS)]
    topic, namespace = Topic(kafka, 3), f"lake.{name}"
    where = {} if kind == "routes" else {"table": f"{namespace}.t"}
    # Small batches: as many commits as possible to be killed between.
    small = {"auto_create": True, "max_records_per_batch": 15}
    config = make_ingest(topics=[topic.name], namespace=namespace, **where, **small, **KINDS[kind])
    world = World(kind, topic, rng)
    world.produce(rng.randint(35, 60))
    job = Job("ingest", config, tmp_path / "report.json")
    job.await_log('"run started"' if trial else '"batch ended"')
    time.sleep(rng.uniform(0.1, 12) if trial else rng.uniform(0, 0.5))
    if trial % 2:  # it may end between two tables
        job.process.terminate()
        job.process.wait(300)
    job.kill()
    world.produce(rng.randint(0, 20))
    ingest(spark, config.replace(max_records_per_batch=100_000))
    tables = {short: f"{namespace}.{short}" for short in ("t", "a", "b", "c")}
    actual = Counter(
        (short, row.id, row.v)
        for short, table in tables.items()
        if spark.catalog.tableExists(table)
        for row in spark.table(table).collect()
    )
    dead_letters = 0
    if spark.catalog.tableExists(config.quoted_dead_letters):
        dead_letters = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'").count()
    assert (world.rows - actual, actual - world.rows, dead_letters) == (Counter(), Counter(), world.dead_letters)


@pytest.mark.long
def it_loses_nothing_when_the_broker_restarts_under_a_continuous_ingest(spark, sql, make_ingest, tmp_path):
    def run():
        try:
            ended.append(ingest(spark, ending).state)
        except IcecdcError as error:
            ended.append(type(error).__name__)

    sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
    with running_kafka(data_folder=tmp_path / "kafka") as servers:
        topic = Topic(servers)
        topic.send(*({"id": number} for number in range(50)))
        config = make_ingest(bootstrap_servers=servers, topics=topic.name)
        ending = config.replace(trigger="continuous", trigger_interval_seconds=0.2, max_seconds=18)
        ended = []
        running = threading.Thread(target=run)
        running.start()
        while running.is_alive() and spark.table(config.table).count() < 50:
            time.sleep(0.2)
    port = int(servers.rpartition(":")[2])
    with running_kafka(data_folder=tmp_path / "kafka", port=port) as servers:
        topic.send(*({"id": number} for number in range(50, 100)))
        running.join()
        ingest(spark, config)
        actual = sorted(row.id for row in spark.table(config.table).collect())
    assert (actual, len(ended)) == (list(range(100)), 1)
