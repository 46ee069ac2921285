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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.loopback_proxy import Act, loopback_proxy

JOBS = ("sync", "sync", "export", "validate")


@dataclass(frozen=True)
class Blow:
    """When to kill: around the n-th request (before or after the server did it), or so many seconds after the start."""

    request: int = 0
    after: bool = False
    seconds: float = 0.0

    @classmethod
    def drawn(cls, rng: random.Random) -> Blow:
        """Mostly around a request, which is exact; a third at any moment."""
        if rng.random() < 1 / 3:
            return cls(seconds=round(rng.uniform(0.05, 6.0), 2))
        return cls(request=rng.randint(1, 24), after=rng.random() < 0.5)

    def __str__(self) -> str:
        if self.request:
            return f"{'after' if self.after else 'before'} request {self.request}"
        return f"{self.seconds} s after the start"


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

    def run(self, job: str, parameters: dict[str, Any], blow: Blow, url: str) -> str:
        """Let it do a job and kill it; returns where that was, or how it ended before."""
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self._await("READY")
        requests: list[str] = []
        killed: list[str] = []

        def trouble(method: str, path: str, body: bytes) -> Act | None:
            requests.append(f"{method} {path.partition('?')[0]}")
            if killed:
                return Act.RESET
            if len(requests) != blow.request:
                return None
            killed.append(requests[-1])
            if blow.after:
                # The server does it, and nobody is there for the answer.
                threading.Timer(0.2, self.kill).start()
                return Act.RESET_AFTER
            self.kill()
            return Act.RESET

        with loopback_proxy(url, trouble=trouble) as proxy:
            order = {"job": job, "parameters": {**parameters, "opensearch_url": proxy.url}}
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            self._await("STARTED")
            if blow.seconds:
                time.sleep(blow.seconds)
                if self.process.poll() is None:
                    killed.append(f"at some moment, after {requests[-1] if requests else 'no request'}")
                self.kill()
                return killed[0]
            line = self.process.stdout.readline()
            while line and not line.startswith(("DONE", "FAILED")):
                line = self.process.stdout.readline()
            self.kill()
        return killed[0] if killed else line.strip()[:200]

    def _await(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return
        raise AssertionError(f"the victim ended before it said {word}")


def rows_as_documents(spark: Any, table: str) -> dict[str, dict[str, Any]]:
    """The table as the index should be, by no code of icecdc; for columns that are JSON as they are."""
    return {str(row["id"]): row.asDict() for row in spark.table(table).collect()}
