"""Every run of the command line ends with one JSON report on the last line of the standard output; no Spark."""

from __future__ import annotations

import json

import pytest

import icecdc_core.__main__ as command_line
from icecdc_core.errors import IcecdcError

GIVEN = ["--table", "lake.ns.t", "--opensearch-url", "http://127.0.0.1:9"]
INGEST = ["--job", "j", "--bootstrap-servers", "127.0.0.1:9", "--topics", "a", "--table", "lake.ns.t"]
JOBS = list(command_line.JOBS)
FILLED = ("job", "run_id", "seconds", "stage", "remedy", "message", "error")


@pytest.fixture
def run(capsys):
    """Run the command line; its exit code, its report, and everything it printed."""

    def ended(*arguments):
        code = command_line.main(arguments)
        printed = capsys.readouterr()
        return code, json.loads(printed.out.splitlines()[-1]), printed.out + printed.err

    return ended


class DescribeAWrongCommandLine:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "required: job"),
            (["snyc", *GIVEN], "There is no such job"),
            (["sync"], "table: missing"),
            (["sync", "--table"], "expected one argument"),
            (["sync", "--tabel", "lake.ns.t"], "--tabel: unknown option. Remedy: did you mean --table"),
            (["sync", "--tab", "lake.ns.t"], "--tab: unknown option"),
            (["sync", *GIVEN, "more"], "a value without an option"),
            (["sync", *GIVEN, "--max-polls", "-1"], "max_polls: "),
            (["ingest", "--job", "j"], "bootstrap_servers: missing"),
        ],
    )
    def it_ends_with_a_report(self, run, arguments, words):
        code, report, _ = run(*arguments)
        assert (code, report["state"], report["exit_code"], words in report["message"]) == (2, "config", 2, True)
        assert [name for name in FILLED if not report[name] and report[name] != 0 and name != "job"] == []

    @pytest.mark.parametrize(
        "wrong",
        [
            ["sync", *GIVEN, "--opensearch-passwrd", "hunter2"],
            ["sync", *GIVEN, "--opensearch-passwrd=hunter2"],
            ["sync", *GIVEN, "--opensearch-passwrd", "--hunter2"],
            ["sync", *GIVEN, "--opensearch-password hunter2"],
            ["sync", *GIVEN, "--opensearch-passwrd", "-hunter2"],
            ["--opensearch-passwrd", "hunter2", "sync", *GIVEN],
            ["sync", *GIVEN, "--opensearch-pass", "hunter2"],
            ["sync", *GIVEN, "--opensearch_pasword", "hunter2"],
            ["sync", *GIVEN, "hunter2"],
            ["sync", *GIVEN, "--opensearch-password:hunter2"],
            ["sync", *GIVEN, "--opensearch-passwrd,hunter2"],
            ["sync", *GIVEN, "--opensearch-passwordhunter2"],
            ["sync", *GIVEN, "--opensearch-passwrd -hunter2"],
            ["sync", *GIVEN, "--help=hunter2"],
        ],
    )
    def it_repeats_no_value(self, run, wrong):
        code, _, printed = run(*wrong)
        assert (code, "unter2" in printed) == (2, False)

    def it_says_when_a_value_is_not_separated_from_its_option(self, run):
        _, report, _ = run("sync", *GIVEN, "--opensearch-password:hunter2")
        assert report["message"].startswith("--opensearch-password: its value is not separated from it. Remedy: write")

    def it_replaces_the_report_of_the_last_run(self, run, tmp_path):
        path = tmp_path / "report.json"
        path.write_text('{"state": "ok"}')
        run("sync", "--report-path", str(path))
        assert json.loads(path.read_text())["state"] == "config"

    @pytest.mark.parametrize("job", JOBS)
    def it_refuses_a_report_path_that_cannot_be_written_before_any_work(self, run, monkeypatch, job):
        def started(config):
            raise AssertionError("a session was started")

        monkeypatch.setattr(command_line, "get_spark", started)
        given = INGEST if job == "ingest" else GIVEN
        code, report, _ = run(job, *given, "--report-path", "/dev/null/report.json")
        assert (code, report["state"], report["stage"]) == (2, "config", "parameters")
        assert "report_path='/dev/null/report.json'" in report["message"]

    @pytest.mark.parametrize("option", ["--help", "-h"])
    def it_names_what_is_required_and_an_example_of_each_job_in_its_help(self, capsys, option):
        with pytest.raises(SystemExit) as caught:
            command_line.main([option])
        printed = capsys.readouterr().out
        assert (caught.value.code, "Required." in printed) == (0, True)
        assert [job for job in JOBS if f" {job} --" not in printed] == []


class DescribeAnUnexpectedError:
    @pytest.mark.parametrize("error", [KeyError("hidden"), KeyboardInterrupt(), IcecdcError("odd")])
    def it_ends_with_a_report(self, run, monkeypatch, error):
        def broken(config):
            raise error

        monkeypatch.setattr(command_line, "get_spark", broken)
        code, report, printed = run("sync", *GIVEN)
        assert (code, report["state"], report["stage"], report["index"]) == (1, "failed", "session", "t")
        assert (report["error"], "Traceback" in printed) == (type(error).__name__, True)
        assert [name for name in FILLED if not report[name] and report[name] != 0] == []


class DescribeALongReason:
    def it_is_cut(self):
        text = str(IcecdcError("It was refused", subject="row_filter", value="x" * 200_000))
        assert (len(text) < 2200, "(200,002 characters)" in text) == (True, True)
