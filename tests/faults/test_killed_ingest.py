"""Ingests killed at random moments, and brokers that restart: afterwards every table equals what was produced.

A few kills by default; `make test SUITE=faults` sets more with ICECDC_FAULTS. ICECDC_SEED chooses other moments.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import ClassVar

import pytest

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest import ingest
from icecdc_core.local.kafka import running_kafka
from tests.faults.killing import KILLS, SEED, Victim, of_one_core
from tests.kafka_topics import Topic


class Appended:
    """One table that is appended to; some records are dead letters."""

    parameters: ClassVar = {}

    def __init__(self):
        self.rows, self.dead_letters = Counter(), 0

    def produce(self, topic, rng, number):
        value = {"id": number, "v": rng.randrange(10)}
        if rng.random() < 0.02:
            topic.send(b"no json")
            self.dead_letters += 1
            return
        topic.send(value)
        self.rows["t", number, value["v"]] += 1

    def tables(self, config):
        return {"t": config.table}


class Routed(Appended):
    """Three tables by a field; records without the field are dead letters."""

    parameters: ClassVar = {"route_by": "field", "route_field": "kind"}

    def produce(self, topic, rng, number):
        kind = rng.choice("abc")
        value = {"id": number, "v": rng.randrange(10)}
        if rng.random() < 0.02:
            topic.send(value)
            self.dead_letters += 1
            return
        topic.send({**value, "kind": kind})
        self.rows[kind, number, value["v"]] += 1

    def tables(self, config):
        return {kind: f"{config.namespace}.{kind}" for kind in "abc"}


class Upserted(Appended):
    """One table with few keys, whose rows are updated and deleted."""

    parameters: ClassVar = {"mode": "upsert", "identifier_columns": "id", "op_field": "op"}

    def produce(self, topic, rng, number):
        key, value = rng.randrange(30), rng.randrange(1000)
        gone = rng.random() < 0.2
        topic.send({"id": key, "op": "d"} if gone else {"id": key, "v": value, "op": "u"})
        for known in [row for row in self.rows if row[1] == key]:
            del self.rows[known]
        if not gone:
            self.rows["t", key, value] = 1


ORDERED = ["job", "topics", "table", "namespace", "route_by", "route_field", "mode", "identifier_columns", "op_field"]
"""Parameters that a victim of one kind needs to do the work of another one."""

KINDS = {"append": Appended, "routes": Routed, "upsert": Upserted}


@pytest.mark.slow
class DescribeKilledIngests:
    def it_ends_with_every_record_once_after_every_kill(self, spark, make_ingest, kafka, name):
        rng = random.Random(SEED)
        worlds, outcomes, victim = {}, [], None
        try:
            for trial in range(KILLS):
                kind = list(KINDS)[trial % len(KINDS)]
                if kind not in worlds:
                    worlds[kind] = self.made(make_ingest, kafka, f"{name}_{kind}", KINDS[kind])
                world, topic, config = worlds[kind]
                victim = victim or Victim(of_one_core(config))
                for number in range(rng.randint(60, 150)):
                    world.produce(topic, rng, trial * 1000 + number)
                seconds = round(rng.uniform(0.1, 12.0), 2)
                how = self.killed(victim, config, seconds)
                victim = Victim(of_one_core(config)) if trial + 1 < KILLS else None
                if rng.random() < 0.5:
                    for number in range(rng.randint(1, 20)):
                        world.produce(topic, rng, trial * 1000 + 500 + number)
                equal, summary = self.next_run(spark, world, config)
                outcomes.append({"equal": equal, "kind": kind, "seconds": seconds, "how": how, "summary": summary})
        finally:
            if victim:
                victim.kill()
        print(f"seed {SEED}: {Counter((each['how'], each['equal']) for each in outcomes)}")
        assert [each for each in outcomes if not each["equal"]] == []

    def made(self, make_ingest, kafka, name, kind):
        topic = Topic(kafka, 3)
        parameters: ClassVar = {"job": name, "topics": [topic.name], "namespace": f"lake.{name}", **kind.parameters}
        if "route_by" not in parameters:
            parameters["table"] = f"lake.{name}.t"
        # Small batches: as many commits as possible to be killed between.
        return kind(), topic, make_ingest(auto_create=True, max_records_per_batch=15, **parameters)

    def killed(self, victim, config, seconds):
        """Start an ingest and kill it after some seconds; returns how it ended."""
        victim.start("ingest", {name: getattr(config, name) for name in ORDERED})
        timer = threading.Timer(seconds, victim.kill)
        timer.start()
        answer = victim.ended()
        timer.cancel()
        victim.kill()
        return answer.partition(" ")[0] or "killed"

    def next_run(self, spark, world, config):
        """Run the ingest again; returns whether every record is there once, and a summary."""
        try:
            report = ingest(spark, config.replace(max_records_per_batch=100_000))
        except IcecdcError as error:
            return False, str(error)
        actual = Counter()
        for short, table in world.tables(config).items():
            if spark.catalog.tableExists(table):
                actual.update((short, row.id, row.v) for row in spark.table(table).collect())
        dead_letters = 0
        if spark.catalog.tableExists(config.quoted_dead_letters):
            dead_letters = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'").count()
        equal = (actual, dead_letters) == (world.rows, world.dead_letters)
        missing, extra = world.rows - actual, actual - world.rows
        return equal, f"{report.rows_written} written then; missing {list(missing)[:3]}, extra {list(extra)[:3]}"


@pytest.mark.slow
class DescribeRestartedBrokers:
    def it_loses_nothing_when_the_broker_restarts_under_a_continuous_ingest(self, spark, sql, make_ingest, tmp_path):
        sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
        with running_kafka(data_folder=tmp_path / "kafka") as servers:
            topic = Topic(servers)
            topic.send(*({"id": number} for number in range(50)))
            config = make_ingest(bootstrap_servers=servers, topics=topic.name)
            ending = config.replace(trigger="continuous", trigger_interval_seconds=0.2, max_seconds=18)
            ended = []
            running = threading.Thread(target=lambda: ended.append(self.outcome(spark, ending)))
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

    def outcome(self, spark, config):
        try:
            return ingest(spark, config).state
        except IcecdcError as error:
            return type(error).__name__
