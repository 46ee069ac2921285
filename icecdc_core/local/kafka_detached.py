"""A Kafka broker in the background, which later processes find again: `make services-up` and `services-down`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from icecdc_core.local.kafka import DEFAULT_KAFKA_PORT, KAFKA_VERSION, answers, start_broker
from icecdc_core.local.left_running import LeftRunning, Place, identity
from icecdc_core.local.ports import free_ports
from icecdc_core.local.processes import detached


@dataclass(frozen=True)
class BrokerState(LeftRunning):
    """A broker that runs in the background."""

    bootstrap_servers: str

    @property
    def healthy(self) -> bool:
        """Whether it accepts connections."""
        return answers(self.bootstrap_servers)


_place = Place("kafka", BrokerState)


def kafka_status() -> BrokerState | None:
    """The broker that `start_kafka` started; None if it does not run."""
    return _place.status()


def start_kafka(*, heap: str = "512m", port: int = 0, timeout_seconds: float = 120.0) -> BrokerState:
    """Start a broker that outlives this process, or return the one that runs.

    A healthy broker that runs already is returned as it is, whatever the arguments. The data survive a restart; they
    are in the user's state folder.
    """

    def start(folder: Path) -> BrokerState:
        data = folder / "data"
        chosen = port or next(free_ports([DEFAULT_KAFKA_PORT]), 0)
        broker = start_broker(folder, data, chosen, heap, {}, timeout_seconds, detached)
        return BrokerState(
            bootstrap_servers=broker.bootstrap_servers,
            version=KAFKA_VERSION,
            log=str(broker.log),
            data_folder=str(data),
            **identity(broker.process),
        )

    return _place.running(start)


def stop_kafka(*, remove_data: bool = False) -> bool:
    """Stop the broker that `start_kafka` started, and no other; returns whether there was one."""
    return _place.stop(remove_data=remove_data)
