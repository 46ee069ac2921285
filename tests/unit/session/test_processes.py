"""Which process one is, signals that ask all runs of it to stop, and a thread for each of several runs."""

import signal
import threading

import pytest
from py4j.protocol import Py4JNetworkError

from icecdc_core.session.processes import StopRequest, stop_on_sigterm
from icecdc_core.session.threads import Slots, run_in_threads


class DescribeStopOnSigterm:
    def it_is_shared_by_all_blocks_inside_also_in_other_threads_and_begins_afresh_after_them(self):
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
        with stop_on_sigterm() as second:
            assert not second.requested

    def it_takes_a_first_interrupt_as_a_request(self):
        before = signal.getsignal(signal.SIGINT)
        with stop_on_sigterm(or_interrupt=True) as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.requested
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == before
        with stop_on_sigterm() as stop, pytest.raises(KeyboardInterrupt):  # not if it was not asked to
            signal.raise_signal(signal.SIGINT)
        assert not stop.requested


class EndedSpark:
    def createDataFrame(self, *given):
        raise Py4JNetworkError


def it_does_not_hide_the_reports_of_the_runs_when_spark_has_ended():
    ran = []
    slots = Slots(1, StopRequest())
    run_in_threads(EndedSpark(), {"a": ran.append}, slots)
    assert ran == [slots]
