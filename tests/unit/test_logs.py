"""Structured logs: one JSON object a line, with its context and without secrets."""

import json
import logging
import threading

import pytest

from icecdc_core.errors import ConfigError
from icecdc_core.logs import current_fields, event, log_fields, logging_to, set_fields


@pytest.fixture
def logged(tmp_path):
    def run(work):
        path = tmp_path / "logs" / "icecdc.jsonl"
        with logging_to(str(path)):
            work()
        return [json.loads(line) for line in path.read_text().splitlines()]

    return run


class DescribeLogs:
    def it_writes_the_fields_of_the_blocks_around(self, logged):
        def work():
            with log_fields(run_id="r1"), log_fields(stage="write"):
                set_fields(batch=7)
                assert current_fields() == {"run_id": "r1", "stage": "write", "batch": 7}
                event("stage ended", seconds=1.5)
            event("outside")

        inside, outside = logged(work)
        fields = {"run_id": "r1", "stage": "write", "batch": 7, "seconds": 1.5}
        assert inside == {"time": inside["time"], "level": "info", "message": "stage ended", **fields}
        assert outside.keys() == {"time", "level", "message"}

    def it_leaves_out_what_looks_like_a_secret(self, logged):
        text = "jdbc://user:planted@host?password=planted"
        entries = logged(lambda: event(text, url="https://planted@host"))
        assert "planted" not in json.dumps(entries)

    def it_writes_what_a_thread_without_a_context_says_and_tells_the_handlers_of_the_application(self, logged, caplog):
        def work():
            thread = threading.Thread(target=event, args=["hello"], kwargs={"n": 1})
            thread.start()
            thread.join()

        with caplog.at_level(logging.INFO, "icecdc"):
            assert [entry["message"] for entry in logged(work)] == ["hello"]
        assert [(record.getMessage(), record.fields) for record in caplog.records] == [("hello", {"n": 1})]

    def it_writes_to_the_standard_error_or_a_file_that_can_be_written(self, capsys, tmp_path):
        with logging_to("-"):
            event("hello")
        assert json.loads(capsys.readouterr().err)["message"] == "hello"
        with logging_to("/dev/full"):  # which ends no run
            event("hello")
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigError, match="log_path"), logging_to(str(tmp_path / "file" / "log")):
            pass
