"""SIGTERM, and an interrupt, ask all runs of the process to stop."""

from __future__ import annotations

import signal
import threading

import pytest

from icecdc_core.session.processes import stop_on_sigterm


class DescribeStopOnSigterm:
    def it_is_shared_by_all_blocks_inside_also_in_other_threads(self):
        seen = []

        def work():
            with stop_on_sigterm() as stop:
                seen.append(stop)

        with stop_on_sigterm() as outer:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            work()
            outer.requested = True
        assert [stop is outer and stop.requested for stop in seen] == [True, True]

    def it_takes_a_first_interrupt_as_a_request(self):
        before = signal.getsignal(signal.SIGINT)
        with stop_on_sigterm(or_interrupt=True) as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.requested
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == before

    def it_leaves_interrupts_alone_otherwise(self):
        with stop_on_sigterm() as stop, pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not stop.requested

    def it_begins_afresh_after_the_block(self):
        with stop_on_sigterm() as first:
            first.requested = True
        with stop_on_sigterm() as second:
            assert not second.requested
