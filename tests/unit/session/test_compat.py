"""Which sessions are refused, and signals that ask all runs of a process to stop."""

import signal
import threading

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkAttributeError

from icecdc_core.errors import DependencyError
from icecdc_core.session.compat import require_supported, unsupported_versions
from icecdc_core.session.jars import ICEBERG_RUNTIMES
from icecdc_core.session.processes import stop_on_sigterm


class ConnectSession:
    """What a session of Spark Connect does with the attributes that icecdc needs."""

    version = "4.1.4"

    def __getattr__(self, name):
        raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": name})


class BlockedSession:
    """What a cluster with shared access does."""

    version = "4.0.1"

    def __getattr__(self, name):
        raise Py4JError(
            "py4j.security.Py4JSecurityException: Method java.lang.Thread.currentThread() is not whitelisted"
        )


def it_names_what_does_not_fit():
    for spark, iceberg, expected in (
        ("4.1.4", "1.12.0", ""), ("4.1.0", "1.12.1", ""), ("4.0.0.databricks", "1.11.0", ""),
        ("3.5.2", "1.11.0", "Spark 3.5.2"), ("4.10.0", "1.12.0", "Spark 4.10.0"),
        ("4.1.4", "", "Spark 4.1.4 without Iceberg"), ("4.1.4", "1.11.0", "Spark 4.1.4 with Iceberg 1.11.0"),
        ("4.0.5", "unknown", "Spark 4.0.5 with Iceberg unknown"),
    ):  # fmt: skip
        assert unsupported_versions(spark, iceberg) == expected


def it_raises_one_typed_error_that_names_what_is_supported():
    pairs = [f"Spark {line} with Iceberg {iceberg[:4]}" for line, iceberg in ICEBERG_RUNTIMES.items()]
    expected = ("found a session without", *pairs, "--packages", "dedicated access mode")
    for session in (ConnectSession(), BlockedSession(), None):
        with pytest.raises(DependencyError) as caught:
            require_supported(session)
        assert [text for text in expected if text not in str(caught.value)] == []


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
