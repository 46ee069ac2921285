"""Progress bars: true counts with separators, rate and time left; silent where nobody looks."""

import io
import sys
import threading
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from icecdc_core.reporting import progress as module
from icecdc_core.reporting.progress import progress


@pytest.fixture
def in_notebook(monkeypatch):
    """Bars are shown, as in a notebook, and look often."""
    monkeypatch.setattr(
        module, "person_output", lambda: SimpleNamespace(write=sys.stdout.write, flush=sys.stdout.flush)
    )
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LOOKS", 0.01)


@pytest.mark.usefixtures("in_notebook")
class DescribeAShownBar:
    def it_waits_for_no_counter_that_fails_or_hangs(self):
        hangs = threading.Event()
        begin = time.monotonic()
        for counter in (lambda: int("refused"), lambda: int(hangs.wait(30))):
            with progress(10, "Exporting") as bar, bar.watching(counter):
                time.sleep(0.02)
        assert (bar.n, time.monotonic() - begin < 5) == (0, True)
        hangs.set()

    @pytest.mark.parametrize("works", [0, 1], ids=["at once", "later"])
    def it_never_fails_a_run_whose_terminal_is_gone(self, monkeypatch, works):
        write = Mock(side_effect=[None] * works + [BrokenPipeError(32, "Broken pipe")] * 99)
        monkeypatch.setattr(module, "person_output", lambda: SimpleNamespace(write=write, flush=lambda: None))
        with progress(10, "Exporting") as bar:
            time.sleep(0.02)
            bar.update(4)
            time.sleep(0.02)
            bar.complete(9)
        assert (bar.n, write.call_count > works) == (9, True)


class DescribeASilentBar:
    def it_counts_and_asks_nobody_and_needs_no_standard_error(self, monkeypatch, capsys):
        closed, asked = io.StringIO(), []
        closed.close()
        for stream in (sys.stderr, None, closed):
            monkeypatch.setattr(sys, "stderr", stream)
            with progress(10, "Exporting") as bar:
                with bar.watching(lambda: asked.append(1) or 0):
                    time.sleep(0.02)
                bar.update(4)
            assert (bar.n, asked, capsys.readouterr().out) == (4, [], "")
