"""One OpenSearch and one Kafka for all test processes of a run. Every test has names of its own in them."""

import os
import shutil
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from icecdc_core.local import running_opensearch
from icecdc_core.local.kafka import running_kafka
from tests.checks.waiting import await_true

_FOLDER = "ICECDC_TEST_SERVERS"
_SERVERS = {"ICECDC_OPENSEARCH_URL": running_opensearch, "ICECDC_BOOTSTRAP_SERVERS": running_kafka}


def start_servers() -> Callable[[], None]:
    """Start those that the environment does not name, while the test processes start too; returns what stops them."""
    folder, ended = Path(tempfile.mkdtemp(prefix="icecdc-servers-")), threading.Event()
    os.environ[_FOLDER] = str(folder)

    def run(name: str) -> None:
        try:
            with _SERVERS[name]() as address:
                (folder / f"{name}.new").write_text(address)
                (folder / f"{name}.new").rename(folder / name)
                ended.wait()
        except Exception:
            (folder / name).write_text(traceback.format_exc())

    threads = [threading.Thread(target=run, args=[name]) for name in _SERVERS if not os.environ.get(name)]
    for thread in threads:
        thread.start()

    def stop() -> None:
        ended.set()
        for thread in threads:
            thread.join()
        shutil.rmtree(folder, ignore_errors=True)

    return stop


@contextmanager
def server(name: str) -> Iterator[str]:
    """The address of the server that this variable names, of the one that the run shares, or of one for the block."""
    if given := os.environ.get(name):
        yield given
    elif _FOLDER in os.environ:
        file = Path(os.environ[_FOLDER], name)
        await_true(file.exists, 180)
        yield file.read_text()
    else:
        with _SERVERS[name]() as address:
            yield address
