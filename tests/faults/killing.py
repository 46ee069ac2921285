"""Kill a driver at one request of its run, before the server sees it or after it was done, or at some moment.

All that a run leaves behind, it leaves through requests to OpenSearch; so killing it around each of them, begin, first
write, last write, commit and alias swap among them, is killing it everywhere that matters.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icecdc_core.config.model import ParameterModel
from tests.fast_java import small_spark
from tests.loopback_proxy import Act, loopback_proxy

KILLS = int(os.environ.get("ICECDC_FAULTS", "2"))
SEED = int(os.environ.get("ICECDC_SEED", "20261121"))
JOBS = ("sync", "sync", "export", "validate")


@dataclass(frozen=True)
class KillPoint:
    """When to kill: around the n-th request (before or after the server did it), or so many seconds after the start."""

    request: int = 0
    after: bool = False
    seconds: float = 0.0

    @classmethod
    def drawn(cls, rng: random.Random) -> KillPoint:
        """Mostly around a request, which is exact; a third at any moment."""
        if rng.random() < 1 / 3:
            return cls(seconds=round(rng.uniform(0.05, 6.0), 2))
        return cls(request=rng.randint(1, 24), after=rng.random() < 0.5)


class Victim:
    """A driver that is started ahead of its use, because starting Spark takes longest."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        script = Path(__file__).with_name("victim.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(parameters)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(script.parents[2])},
            start_new_session=True,
        )

    def kill(self) -> None:
        """End driver, JVM and Python workers at once, with no chance to clean up."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def run(self, job: str, parameters: dict[str, Any], kill_point: KillPoint, url: str) -> str:
        """Let it do a job and kill it; returns where that was, or how it ended before."""
        requests: list[str] = []
        killed: list[str] = []

        def trouble(method: str, path: str, body: bytes) -> Act | None:
            requests.append(f"{method} {path.partition('?')[0]}")
            if killed:
                return Act.RESET
            if len(requests) != kill_point.request:
                return None
            killed.append(requests[-1])
            if kill_point.after:
                # The server does it, and nobody is there for the answer.
                threading.Timer(0.2, self.kill).start()
                return Act.RESET_AFTER
            self.kill()
            return Act.RESET

        with loopback_proxy(url, trouble=trouble) as proxy:
            self.start(job, {**parameters, "opensearch_url": proxy.url})
            if kill_point.seconds:
                time.sleep(kill_point.seconds)
                if self.process.poll() is None:
                    killed.append(f"at some moment, after {requests[-1] if requests else 'no request'}")
                    self.kill()
            ended = "" if killed and kill_point.seconds else self.ended()
            self.kill()
        return killed[0] if killed else ended

    def start(self, job: str, parameters: dict[str, Any], trap: tuple[str, int] | None = None) -> None:
        """Let it start a job, with these parameters changed; it dies of the trap, a function and a number of calls."""
        assert self.process.stdin is not None
        self._await("READY")
        self.process.stdin.write(json.dumps({"job": job, "parameters": parameters, "trap": trap}) + "\n")
        self.process.stdin.flush()
        self._await("STARTED")

    def ended(self) -> str:
        """Wait until it ends; what it said of the job, "" when it was killed."""
        assert self.process.stdout is not None
        return next((line for line in self.process.stdout if line.startswith(("DONE", "FAILED"))), "").strip()[:200]

    def _await(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return
        raise AssertionError(f"the victim ended before it said {word}")


def of_one_core(config: ParameterModel) -> dict[str, Any]:
    """The parameters as JSON takes them, for a small Spark of its own."""
    given = {name: getattr(config, name) for name in config.model_fields_set}
    given = {name: dict(value) if isinstance(value, Mapping) else value for name, value in given.items()}
    return {**given, "spark_conf": small_spark()}


def rows_as_documents(spark: Any, table: str) -> dict[str, dict[str, Any]]:
    """The table as the index should be, by no code of icecdc; for columns that are JSON as they are."""
    return {str(row["id"]): row.asDict() for row in spark.table(table).collect()}
