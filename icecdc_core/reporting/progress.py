"""Progress bars that count documents, with their rate and the time left."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

SECONDS_BETWEEN_LOOKS = 0.5
"""How often a bar looks at a counter, and is drawn."""
_BAR = "{desc}: {percentage:3.0f}% |{bar:20}| {n:,} of {total:,} documents [{elapsed}<{remaining}, {rate_text}]"


class Progress:
    """How many documents are done, and the bar that shows it."""

    def __init__(self, bar: tqdm[Any] | None, total: int, done: int = 0) -> None:
        self._bar, self._total, self._known, self.n = bar, total, done, done
        self._lock = threading.Lock()

    @property
    def is_shown(self) -> bool:
        """Whether somebody sees the bar, so that it is worth while to count on the way."""
        return self._bar is not None

    def update(self, documents: int) -> None:
        """Add documents that are done for certain."""
        with self._lock:
            self._known += documents
            self._show(max(self.n, self._known))

    def complete(self, documents: int) -> None:
        """End with the true number: the total includes rows that a row filter or a delete file leaves out."""
        with self._lock:
            self._total = self._known = documents
            if self._bar is not None:
                self._bar.total = documents
            self._show(documents)

    @contextmanager
    def watching(self, count: Callable[[], int]) -> Iterator[None]:
        """Show from time to time how many documents are done, while the caller waits for Spark."""
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
                            self._show(max(self.n, counted))

        threading.Thread(target=look, name="icecdc-progress", daemon=True).start()
        try:
            yield
        finally:
            # A request may take long; nobody waits for the last one.
            with self._lock:
                ended.set()

    def _show(self, documents: int) -> None:
        if self._bar is not None:
            documents = min(documents, self._total)
            # The terminal or the notebook may be gone, which is no reason to end the run.
            with suppress(Exception):
                self._bar.update(documents - self.n)
        self.n = documents


@contextmanager
def progress(total: int, description: str, done: int = 0) -> Iterator[Progress]:
    """Show a progress bar: in a notebook and on a terminal, not in a log file, and not if there is nothing to do."""
    bar = None
    with suppress(Exception):  # also without tqdm
        if total and (output := person_output()) is not None:
            bar = _bar(total, description, done, output)
    try:
        yield Progress(bar, total, done)
    finally:
        if bar is not None:
            with suppress(Exception):
                bar.close()


def _bar(total: int, description: str, done: int, output: Any) -> tqdm[Any]:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # tqdm would start a thread for each bar's class, which never ends

        @property
        def format_dict(self) -> Any:
            known = super().format_dict
            rate = known["rate"] or (known["n"] - done) / max(known["elapsed"], 0.001)
            return {**known, "rate_text": f"{rate:,.0f}/s"}

    looks = {"bar_format": _BAR, "mininterval": SECONDS_BETWEEN_LOOKS, "file": output}
    return Bar(total=total, initial=done, desc=description, **looks)


class _NotebookLine:
    """A line that a notebook replaces: as a stream, every state of the bar would be a line of the saved notebook.

    It is plain text, because widgets need a live kernel to be seen again.
    """

    encoding = "utf-8"

    def __init__(self) -> None:
        from IPython.display import display

        self._handle: Any = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def write(self, text: str) -> None:
        if line := text.strip():
            self._handle.update({"text/plain": line}, raw=True)

    def flush(self) -> None:
        """Do nothing: a line is shown at once."""


def person_output() -> Any:
    """Where a person sees a bar: in the notebook or on the terminal; None: nowhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is not None:
        return _NotebookLine()
    return sys.stderr if sys.stderr.isatty() else None
