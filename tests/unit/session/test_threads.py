"""A thread for each of several runs; pure."""

from __future__ import annotations

from py4j.protocol import Py4JNetworkError

from icecdc_core.session.processes import StopRequest
from icecdc_core.session.threads import Slots, run_in_threads


class EndedSpark:
    """A session whose JVM has ended."""

    def createDataFrame(self, *given):
        raise Py4JNetworkError


class DescribeASessionThatEnded:
    def it_does_not_hide_the_reports_of_the_runs(self):
        ran = []
        slots = Slots(1, StopRequest())
        run_in_threads(EndedSpark(), {"a": ran.append}, slots)
        assert ran == [slots]
