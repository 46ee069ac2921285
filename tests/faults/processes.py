"""Jobs of the command line in processes of their own, which a test stops or kills."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from icecdc_core.config.model import ParameterModel
from tests.checks.waiting import await_true
from tests.speed.fast_java import small_spark

ROOT = Path(__file__).parents[2]


class Job:
    """A job at work, with the lines of its log."""

    def __init__(self, job: str, config: ParameterModel, report_path: Path, **parameters: Any) -> None:
        given = {name: getattr(config, name) for name in config.model_fields_set}
        given = {name: dict(value) if isinstance(value, Mapping) else value for name, value in given.items()}
        given |= {"spark_conf": small_spark(), **parameters, "report_path": str(report_path), "log_path": "-"}
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
        options = [text for name, value in texts.items() if value for text in (f"--{name}", value)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "icecdc_core", job, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self.report_path, self.lines = report_path, list[str]()
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr or ()), daemon=True).start()

    def await_log(self, words: str) -> None:
        await_true(lambda: any(words in line for line in self.lines) or self.process.poll() is not None, 120)
        assert any(words in line for line in self.lines), "".join(self.lines)[-3000:]

    def ended(self) -> tuple[int, dict[str, Any]]:
        return self.process.wait(300), json.loads(self.report_path.read_text())

    def kill_java(self) -> None:
        command = ["pgrep", "-x", "-g", str(self.process.pid), "java"]
        for number in subprocess.run(command, capture_output=True, text=True).stdout.split():
            os.kill(int(number), signal.SIGKILL)

    def kill(self) -> None:
        """End driver, JVM and Python workers at once, with no chance to clean up."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
