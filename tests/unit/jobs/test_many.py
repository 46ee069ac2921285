"""Whether several indexes can share a Spark application; pure."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError, SchemaChangeError, TableLockedError
from icecdc_core.jobs import many
from icecdc_core.jobs.many import require_one_session, run_many
from icecdc_core.jobs.poll import follow_changes
from icecdc_core.reporting.reports import RunReport
from icecdc_core.session import job_session
from icecdc_core.session.processes import StopRequest


def configs(*parameters):
    return {f"index{n}": SyncConfig(**{"table": "lake.ns.t", **given}) for n, given in enumerate(parameters)}


class DescribeOneSession:
    def it_serves_indexes_that_agree(self):
        require_one_session(configs({"warehouse": "/a"}, {"warehouse": "/a/"}))
        require_one_session(configs({"spark_conf": {"spark.x": "1"}}, {"spark_conf": {"spark.x": "1"}}))
        require_one_session(
            configs(*({"table": f"{n}.ns.t", "catalog_properties": {"uri": f"http://{n}"}} for n in ("lake", "pond")))
        )

    def it_refuses_indexes_that_do_not(self):
        for one, other, parameter in (
            ({"warehouse": "/a"}, {"warehouse": "/b"}, "catalog_properties"),
            ({"catalog_properties": {"uri": "env:A"}}, {"catalog_properties": {"uri": "env:B"}}, "catalog_properties"),
            ({"spark_conf": {"spark.x": "1"}}, {"spark_conf": {"spark.x": "2"}}, "spark_conf"),
        ):
            with pytest.raises(ConfigError) as caught:
                require_one_session(configs(one, other))
            message = str(caught.value)
            assert (message.startswith("'index0' and 'index1' "), parameter in message) == (True, True)
            assert [value for value in ("/a", "env:A", "=1") if value in message] == []


def _nothing(*given):
    return None


SPARK = SimpleNamespace(
    sparkContext=SimpleNamespace(setJobGroup=_nothing, setLocalProperty=_nothing), createDataFrame=_nothing
)
"""Polls that are made up need no more of a session."""


class DescribePolling:
    @pytest.fixture
    def run(self, monkeypatch):
        """Poll two indexes; the first one's syncs end with these errors (None: well)."""

        def ended(*outcomes, on_wait=lambda stop: None, **watch):
            left, summaries, registered = list(outcomes), [], []

            def sync(spark, config):
                error = left.pop(0) if config.index == "a" and left else None
                if error is not None:
                    raise error
                return RunReport("sync", config.table, config.index, snapshots=1)

            monkeypatch.setattr(many, "sync_changes", sync)
            monkeypatch.setattr(many, "register_catalog", lambda spark, config: registered.append(config.catalog))
            monkeypatch.setattr(many, "new_job_session", lambda spark: spark)
            monkeypatch.setattr(job_session, "InheritableThread", threading.Thread)
            monkeypatch.setattr(many, "active_session", lambda spark: nullcontext())
            monkeypatch.setattr(StopRequest, "wait", lambda self, seconds: on_wait(self))
            given, tables = {"poll_interval_seconds": 1, "max_polls": 4}, {"a": "lake.ns.t", "b": "pond.ns.t"}
            configs = {name: SyncConfig(index=name, table=table, **given) for name, table in tables.items()}
            found = run_many(SPARK, follow_changes, configs, command="sync", on_poll=summaries.append, **watch)
            assert registered == ["lake", "pond"]
            return found, summaries

        return ended

    def it_polls_an_index_again_that_was_locked_or_out_of_reach(self, run):
        found, summaries = run(None, TableLockedError("another run"))
        assert (found.state, found.indexes["a"].snapshots, found.indexes["b"].snapshots) == ("ok", 3, 4)
        assert [summary.states["a"] for summary in summaries].count("locked") >= 1
        assert len(summaries) == 8

    def it_reports_a_failure_once_also_if_it_is_asked_to_stop_meanwhile(self, run):
        failures = []
        found, _ = run(
            TableLockedError("another run"),
            on_wait=lambda stop: setattr(stop, "requested", True),
            on_failure=lambda name, failure, trace: failures.append((name, failure["state"], "Traceback" in trace)),
        )
        assert (failures, found.states["a"]) == ([("a", "locked", True)], "locked")

    def it_ends_the_loop_of_an_index_that_no_retry_helps_and_reports_the_failure_of_the_last_poll(self, run):
        found, _ = run(None, SchemaChangeError("changed"), None)
        assert (found.states, found.indexes["b"].snapshots) == ({"a": "reexport", "b": "ok"}, 4)
        found, _ = run(None, None, None, TableLockedError("another run"))
        assert (found.states, found.indexes["a"]["message"]) == ({"a": "locked", "b": "ok"}, "another run.")

    def it_says_to_run_again_when_the_java_process_has_ended(self, run, monkeypatch):
        def refuse(*given):
            raise ConnectionRefusedError

        monkeypatch.setattr(SPARK.sparkContext, "setJobGroup", refuse)
        monkeypatch.setattr(SPARK, "createDataFrame", refuse)  # which hides no report
        found, _ = run()
        assert {(each["state"], each["error"]) for each in found.indexes.values()} == {("retry", "SparkJobError")}
