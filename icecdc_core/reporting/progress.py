"""What runs are doing now: documents that are done, with their rate and the time left; on a terminal also stages."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

SECONDS_BETWEEN_LOOKS = 0.5
"""How often a counter is looked at, and the line drawn."""


class Progress:
    """What is being done, and how many documents of how many are done."""

    def __init__(self, description: str, total: int = 0, done: int = 0, is_shown: bool = False) -> None:
        self.is_shown, self.thread = is_shown, threading.get_ident()
        self._description, self.total, self._known, self.n = description, total, done, done
        self._done_before, self._began = done, time.monotonic()
        self._lock = threading.Lock()

    def update(self, documents: int) -> None:
        """Add documents that are done for certain."""
        with self._lock:
            self._known += documents
            self.n = min(max(self.n, self._known), self.total)

    def complete(self, documents: int) -> None:
        """End with the true number: the total includes rows that a row filter or a delete file leaves out."""
        with self._lock:
            self.total = self._known = self.n = documents

    @contextmanager
    def watching(self, count: Callable[[], int]) -> Iterator[None]:
        """Look from time to time how many documents are done, while the caller waits for Spark."""
        if not self.is_shown:
            yield
            return
        ended, known = threading.Event(), self._known

        def look() -> None:
            with suppress(Exception):
                first = count()
                while not ended.wait(SECONDS_BETWEEN_LOOKS):
                    counted = known + count() - first
                    with self._lock:
                        if not ended.is_set():
                            self.n = min(max(self.n, counted), self.total)

        threading.Thread(target=look, name="icecdc-progress", daemon=True).start()
        try:
            yield
        finally:
            # A request may take long; nobody waits for the last one.
            with self._lock:
                ended.set()

    def text(self) -> str:
        """The line that shows it."""
        seconds = time.monotonic() - self._began
        if not self.total:
            return f"{self._description} ({timedelta(seconds=int(seconds))})"
        rate = (self.n - self._done_before) / max(seconds, 0.001)
        left = timedelta(seconds=int((self.total - self.n) / rate)) if rate else "?"
        done = f"{100 * self.n // self.total}%, {self.n:,} of {self.total:,} documents"
        return f"{self._description}: {done} [{rate:,.0f}/s, {left} left]"


class _Line:
    """The line that shows what each thread is doing; it is there as long as one of them does something."""

    def __init__(self) -> None:
        self._shown: list[Progress] = []
        self._lock = threading.RLock()
        self._output: Any = None
        self._close: Callable[[], object] = lambda: None
        self._drawn = 0
        self._ended = threading.Event()
        self._thread = threading.Thread()

    def add(self, progress: Progress, output: Any) -> None:
        with self._lock:
            self._shown.append(progress)
            if self._output is None:
                self._output, self._close, self._ended = output, lambda: None, threading.Event()
                with suppress(Exception):  # While Spark starts, the standard error is a file, see `jvm_output_to_file`.
                    self._output = os.fdopen(os.dup(output.fileno()), "w", encoding="utf-8", errors="replace")
                    self._close = self._output.close
                self._thread = threading.Thread(target=self._draw_until, args=(self._ended,), daemon=True)
                self._thread.start()
            self._draw()

    def remove(self, progress: Progress) -> None:
        with self._lock:
            self.erase()
            self._shown.remove(progress)
            if progress.total:
                self._write(f"{progress.text()}\n")
            if self._shown:
                self._draw()
                return
            self._ended.set()
            self._output, thread = None, self._thread
            with suppress(Exception):
                self._close()
        thread.join(1.0)

    def erase(self) -> None:
        """Make room for another line."""
        with self._lock:
            if self._drawn:
                self._write(f"\r{'':{self._drawn}}\r")
            self._drawn = 0

    def _draw(self) -> None:
        width = 1000
        with suppress(Exception):  # some terminals say that they have no width
            width = (os.get_terminal_size(self._output.fileno()).columns or 80) - 1
        current = {progress.thread: progress for progress in self._shown}
        text = " · ".join(progress.text() for progress in current.values())[:width]
        self._write(f"\r{text:{self._drawn}}")
        self._drawn = len(text)

    def _draw_until(self, ended: threading.Event) -> None:
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            with self._lock:
                if not ended.is_set():
                    self._draw()

    def _write(self, text: str) -> None:
        # The terminal or the notebook may be gone, which is no reason to end the run.
        with suppress(Exception):
            self._output.write(text)
            self._output.flush()


_line = _Line()
_hidden = threading.Event()


@contextmanager
def progress(total: int, description: str, done: int = 0) -> Iterator[Progress]:
    """Count documents: shown in a notebook and on a terminal, not in a log file, nor if there is nothing to do."""
    with _shown(description, person_output() if total else None, total, done) as bar:
        yield bar


@contextmanager
def activity(description: str | Callable[[], str]) -> Iterator[None]:
    """Say on a terminal what the block does; a notebook has its bars only."""
    output, text = _terminal(), ""
    with suppress(Exception):  # whatever it reads, it is only to be seen
        text = "" if output is None else description if isinstance(description, str) else description()
    with _shown(text, output):
        yield


@contextmanager
def hidden() -> Iterator[None]:
    """Show nothing in the block, whoever looks."""
    _hidden.set()
    try:
        yield
    finally:
        _hidden.clear()


def print_line(text: str, stream: Any = None) -> None:
    """Print a line in one write, because other threads print too, and not into the middle of what is shown."""
    _line.erase()
    print(f"{text}\n", end="", flush=True, file=stream)


@contextmanager
def _shown(description: str, output: Any, total: int = 0, done: int = 0) -> Iterator[Progress]:
    each = Progress(description, total, done, is_shown=output is not None)
    if output is not None:
        _line.add(each, output)
    try:
        yield each
    finally:
        if output is not None:
            _line.remove(each)


class _NotebookLine:
    """A line that a notebook replaces: as a stream, every state of the bar would be a line of the saved notebook.

    It is plain text, because widgets need a live kernel to be seen again.
    """

    def __init__(self) -> None:
        from IPython.display import display

        self._handle: Any = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def write(self, text: str) -> None:
        if line := text.strip():
            self._handle.update({"text/plain": line}, raw=True)

    def flush(self) -> None:
        """Do nothing: a line is shown at once."""


def _terminal() -> Any:
    """The terminal that a person sees; None if there is none, or something else is to be seen there."""
    if _hidden.is_set() or _kernel() is not None:
        return None
    with suppress(Exception):  # without a standard error, or a closed one
        return sys.stderr if sys.stderr.isatty() else None
    return None


def _kernel() -> Any:
    ipython = sys.modules.get("IPython")
    return getattr(ipython.get_ipython() if ipython is not None else None, "kernel", None)


def person_output() -> Any:
    """Where a person sees a bar: in the notebook or on the terminal; None: nowhere."""
    return _NotebookLine() if _kernel() is not None and not _hidden.is_set() else _terminal()
