"""What runs are doing now: documents that are done, with their rate and the time left; on a terminal also stages."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

SECONDS_BETWEEN_LOOKS = 0.5  # at a counter; the line is drawn as often
_ERASE = "\r\x1b[K"

_lock = threading.RLock()
_shown: list[Progress] = []  # in all threads; the last one has the line
_hidden = threading.Event()


class Progress:
    def __init__(self, description: str, total: int = 0, done: int = 0, output: Any = None) -> None:
        self._description, self.total, self._known, self.n = description, total, done, done
        self._done_before, self._began, self._output = done, time.monotonic(), output

    def update(self, documents: int) -> None:
        self._known += documents
        self.n = min(max(self.n, self._known), self.total)

    def complete(self, documents: int) -> None:
        """End with the true number: the total includes rows that a row filter or a delete file leaves out."""
        self.total = self._known = self.n = documents

    @contextmanager
    def watching(self, count: Callable[[], int]) -> Iterator[None]:
        """Look from time to time how many documents are done, while the caller waits for Spark."""
        ended, known = threading.Event(), self._known

        def look() -> None:
            with suppress(Exception):
                first = count()
                while not ended.wait(SECONDS_BETWEEN_LOOKS):
                    counted = known + count() - first
                    if not ended.is_set():
                        self.n = min(max(self.n, counted), self.total)

        if self._output is not None:
            threading.Thread(target=look, name="icecdc-progress", daemon=True).start()
        try:
            yield
        finally:
            ended.set()  # a request may take long; nobody waits for the last one

    def text(self) -> str:
        seconds = time.monotonic() - self._began
        if not self.total:
            return f"{self._description} ({timedelta(seconds=int(seconds))})"
        rate = (self.n - self._done_before) / max(seconds, 0.001)
        left = timedelta(seconds=int((self.total - self.n) / rate)) if rate else "?"
        done = f"{100 * self.n // self.total}%, {self.n:,} of {self.total:,} documents"
        return f"{self._description}: {done} [{rate:,.0f}/s, {left} left]"

    def write(self, text: str) -> None:
        # The terminal or the notebook may be gone, which is no reason to end the run.
        with suppress(Exception):
            self._output.write(f"{_ERASE}{text}")
            self._output.flush()

    @contextmanager
    def shown(self) -> Iterator[Progress]:
        """Draw the line during the block, and let that of documents stay."""
        if self._output is None:
            yield self
            return
        ended = threading.Event()

        def draw() -> None:
            while not ended.is_set():
                with _lock:
                    if _shown[-1:] == [self]:
                        self.write(self.text()[: shutil.get_terminal_size().columns - 1])
                ended.wait(SECONDS_BETWEEN_LOOKS)

        _shown.append(self)
        thread = threading.Thread(target=draw, name="icecdc-line", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            with _lock:
                _shown.remove(self)
                self.write(f"{self.text()}\n" if self.total else "")
            thread.join(1.0)
            with suppress(Exception):
                self._output.close()


def progress(total: int, description: str, done: int = 0) -> AbstractContextManager[Progress]:
    """Count documents: shown in a notebook and on a terminal, not in a log file, nor if there is nothing to do."""
    return Progress(description, total, done, person_output() if total else None).shown()


def activity(description: str | Callable[[], str]) -> AbstractContextManager[Progress]:
    output, text = _terminal(), ""
    with suppress(Exception):  # whatever it reads, it is only to be seen
        text = "" if output is None else description if isinstance(description, str) else description()
    return Progress(text, output=output).shown()


@contextmanager
def hidden() -> Iterator[None]:
    _hidden.set()
    try:
        yield
    finally:
        _hidden.clear()


def print_line(text: str, stream: Any = None) -> None:
    """Print a line in one write, because other threads print too, and not into the middle of what is shown."""
    with _lock:
        if _shown:
            _shown[-1].write("")
        with suppress(OSError, ValueError):  # nobody may read it any more, which is no reason to end the run
            print(f"{text}\n", end="", flush=True, file=stream)


def _notebook_line() -> Any:
    """A line that a notebook replaces; it is plain text, because widgets need a live kernel to be seen again."""
    from IPython.display import display

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def write(text: str) -> None:
        if line := text.removeprefix(_ERASE).strip():
            handle.update({"text/plain": line}, raw=True)

    return SimpleNamespace(write=write)


def _terminal() -> Any:
    """The terminal that a person sees; None if there is none, or something else is to be seen there."""
    if _hidden.is_set() or _kernel() is not None:
        return None
    with suppress(Exception):  # no standard error, a closed one, or one that is no terminal
        # By its name: while Spark starts, the standard error is a file, see `jvm_output_to_file`.
        return open(os.ttyname(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
    return None


def _kernel() -> Any:
    ipython = sys.modules.get("IPython")
    return getattr(ipython.get_ipython() if ipython is not None else None, "kernel", None)


def person_output() -> Any:
    return _notebook_line() if _kernel() is not None and not _hidden.is_set() else _terminal()
