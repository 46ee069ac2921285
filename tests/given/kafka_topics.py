"""A topic of a test: made, written to, and read back by Kafka's own client, without any code of icecdc."""

import itertools
import json
import os
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

_numbers = itertools.count(1)


class Topic:
    def __init__(self, servers: str, partitions: int = 2, name: str = "", **settings: str) -> None:
        self.servers = servers
        self.name = name or f"topic{next(_numbers)}_{os.getpid()}"
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        # Records of tests are as old as they say; a broker that looks in between would remove them.
        config = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in settings.items()}}
        new = NewTopic(self.name, partitions, 1, config=config)
        self.admin.create_topics([new])[self.name].result(30)
        self._producer = self._new_producer()

    def send(self, *values: Any, partition: int = -1, key: Any = None, headers: Any = None, timestamp: int = 0) -> None:
        """Write records: None is a tombstone, bytes are taken as they are, all else becomes JSON."""
        refused: list[Any] = []
        for value in values:
            encoded = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            by = key if key is not None else (str(value["id"]) if isinstance(value, dict) and "id" in value else None)
            self._producer.produce(
                self.name,
                encoded,
                key=by,
                partition=partition,
                headers=headers,
                timestamp=timestamp or int(time.time() * 1000),
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
            self._producer.poll(0)
        waiting = self._producer.flush(30)
        assert (waiting, refused) == (0, [])

    def send_in_transaction(self, *values: Any, commit: bool) -> None:
        own = {"transactional.id": f"{self.name}-{next(_numbers)}"}
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0, **own})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, json.dumps(value).encode(), key=str(value["id"]))
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)

    def add_partitions(self, total: int) -> None:
        self.admin.create_partitions([NewPartitions(self.name, total)])[self.name].result(30)
        while len(self.ends()) < total:
            time.sleep(0.1)
        self._producer = self._new_producer()

    def remove_before(self, partition: int, offset: int) -> None:
        where = TopicPartition(self.name, partition, offset)
        for future in self.admin.delete_records([where]).values():
            future.result(30)

    def delete(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result(30)
        while self.name in self.admin.list_topics(timeout=10).topics:
            time.sleep(0.1)

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.servers, "log_level": 0, "linger.ms": 5})

    def ends(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "tests", "log_level": 0})
        numbers = consumer.list_topics(self.name, timeout=10).topics[self.name].partitions
        places = {number: TopicPartition(self.name, number) for number in numbers}
        found = {number: consumer.get_watermark_offsets(place, timeout=10)[1] for number, place in places.items()}
        consumer.close()
        return found
