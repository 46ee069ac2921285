"""Every run of the command line ends with one JSON report on the last line of the standard output; no Spark."""

import json
import subprocess
import sys
from unittest.mock import Mock

import pytest

import icecdc_core.__main__ as command_line
from icecdc_core.cli import COMMANDS, parse
from icecdc_core.errors import IcecdcError
from icecdc_core.reporting.reports import RunReport

GIVEN = ["--table", "lake.ns.t", "--opensearch-url", "http://127.0.0.1:9"]
INGEST = ["--job", "j", "--bootstrap-servers", "127.0.0.1:9", "--topics", "a", "--table", "lake.ns.t"]
FILLED = ("run_id", "stage", "remedy", "message", "error")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where `init` finds no index file

    def ended(*arguments):
        code = command_line.main(arguments)
        printed = capsys.readouterr()
        return code, json.loads(printed.out.splitlines()[-1]), printed.out + printed.err

    return ended


@pytest.fixture
def broken(monkeypatch):
    def _broken(error):
        monkeypatch.setattr("icecdc_core.session.spark.get_spark", Mock(side_effect=error))

    return _broken


def status(config, index):
    return RunReport("status", config.table, index)


class DescribeAWrongCommandLine:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "no command is given"),
            (["snyc", *GIVEN], "There is no such command"),
            (["sync"], "table: missing"),
            (["sync", "--tabel", "lake.ns.t"], "--tabel: unknown option or a value without one. Remedy: did you mean"),
            (["sync", *GIVEN, "-host", "h"], "unknown option or a value without one"),
            (["sync", *GIVEN, "--dry-run", "often"], "dry_run: input should be a valid boolean"),
            (["sync", "--json=hunter2"], "--json: ignored explicit argument (not shown)"),
            (["sync", *GIVEN, "--table=lake.ns.hunter2"], "--table: given twice"),
            (["sync", "--only", "a"], "--file: missing or empty"),
            (["sync", "--file", "f.yml", "--parallel", "hunter2"], "--parallel: invalid int value: (not shown)"),
            (["sync", "--file", "f.yml", "--only="], "--only: needs names"),
            (["sync", "--file", "f.yml", "--table", "lake.ns.hunter2"], "--table: given for all entries of a file"),
        ],
    )
    def it_ends_with_a_report(self, run, arguments, words):
        code, report, printed = run(*arguments)
        assert (code, report["state"], report["exit_code"], words in report["message"]) == (2, "config", 2, True)
        assert ([name for name in FILLED if not report[name]], "unter2" in printed) == ([], False)

    def it_repeats_no_value(self, run):
        for wrong in (
            *(["hunter2"], ["--help=hunter2"], ["--opensearch_pasword", "hunter2"]),
            *(["--opensearch-passwrd", value] for value in ("hunter2", "--hunter2", "-hunter2")),
            *([f"--opensearch-passw{end}hunter2"] for end in ("rd=", "rd -", "ord ", "ord:", "ord")),
        ):
            for arguments in (["sync", *GIVEN, *wrong], [*wrong, "sync", *GIVEN]):
                code, _, printed = run(*arguments)
                assert (code, "unter2" in printed) == (2, False), wrong

    @pytest.mark.parametrize("job", COMMANDS)
    def it_refuses_a_report_path_that_cannot_be_written_before_any_work(self, run, broken, job):
        broken(AssertionError("a session was started"))
        init = [*INGEST[2:-2], "--namespace", "lake.ns"]
        given = {"ingest": INGEST, "status --ingest": INGEST, "init-ingest": init}.get(job, GIVEN)
        given = [*given, "--id", "1"] if job == "explain" else given
        code, report, _ = run(job, *given, "--report-path", "/dev/null/report.json")
        expected = 1 if job == "plan" else 2  # of a plan, 2 means changes
        assert (code, report["exit_code"], report["state"], report["stage"]) == (
            expected,
            expected,
            "config",
            "parameters",
        )
        assert "report_path='/dev/null/report.json'" in report["message"]


class DescribeTheEnd:
    def it_has_the_code_of_the_run_although_nobody_can_read_its_report(self):
        command = [sys.executable, "-m", "icecdc_core", "sync"]
        with open("/dev/full", "w") as full:
            ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, "table: missing" in ended.stderr) == (2, True)

    def it_shows_the_status_of_the_index_that_is_named(self, run, monkeypatch):
        monkeypatch.setattr("icecdc_core.runs.cluster_status.cluster_status", status)
        shown = [run("status", *given)[1]["index"] for given in ([], ["--index", "films"], ["--table", "lake.ns.t"])]
        assert shown == ["", "films", ""]


class DescribeOptions:
    def it_reads_the_parameters_of_an_ingest_for_its_status(self):
        for arguments in (["--ingest", *INGEST], [*INGEST, "--ingest"]):
            request = parse(["status", *arguments])
            assert COMMANDS[request.command].kind(**request.parameters).subject == {"table": "lake.ns.t", "index": "j"}

    def it_reads_values_and_flags(self):
        for arguments, expected in (
            *((["--dry-run"], {"dry_run": "true"}), (["--repair=false"], {"repair": "false"})),
            (["--repair", "TRUE", "--dry_run"], {"repair": "TRUE", "dry_run": "true"}),
            *((["--repair", ""], {"repair": ""}), (["--columns=a,b"], {"columns": "a,b"})),
            *((["--start-from", "-12"], {"start_from": "-12"}), (["--log-path", "-"], {"log_path": "-"})),
        ):
            assert parse(["validate", *arguments]).parameters == expected


class DescribeAFailure:
    @pytest.mark.parametrize("error", [KeyError("hidden"), KeyboardInterrupt(), IcecdcError("odd")])
    def it_ends_with_a_report(self, run, broken, error):
        broken(error)
        code, report, printed = run("sync", *GIVEN)
        assert (code, report["state"], report["stage"], report["index"]) == (1, "failed", "session", "t")
        is_unexpected = not isinstance(error, KeyboardInterrupt)
        assert (report["error"], "Traceback" in printed) == (type(error).__name__, is_unexpected)
        assert [name for name in FILLED if not report[name]] == []

    def it_shows_no_password_of_a_url_in_its_traceback(self, run, broken):
        broken(RuntimeError("cannot open jdbc:postgresql://icecdc:hunter2@db/lake?password=hunter2"))
        _, _, printed = run("sync", *GIVEN)
        assert ("RuntimeError: cannot open" in printed, "hunter2" in printed) == (True, False)

    def it_replaces_the_report_of_the_last_run_also_that_which_a_file_names(self, run, broken, tmp_path):
        broken(IcecdcError("Spark did not start"))
        report, file = tmp_path / "report.json", tmp_path / "indexes.yml"
        report.write_text('{"state": "ok"}')
        run("sync", "--report-path", str(report))
        assert json.loads(report.read_text())["state"] == "config"
        file.write_text(f"defaults: {{report_path: {report}}}\nindexes: {{t: {{table: lake.ns.t}}}}\n")
        run("sync", "--file", str(file))
        assert json.loads(report.read_text())["message"].startswith("Spark did not start")

    def it_writes_to_each_path_the_summary_of_the_indexes_that_name_it(self, run, monkeypatch, tmp_path):
        monkeypatch.setattr("icecdc_core.runs.cluster_status.cluster_status", status)
        paths = {"a": tmp_path / "one.json", "b": tmp_path / "other.json", "c": tmp_path / "one.json"}
        indexes = {name: {"table": f"lake.ns.{name}", "report_path": str(path)} for name, path in paths.items()}
        (tmp_path / "indexes.yml").write_text(json.dumps({"indexes": indexes}))
        _, report, _ = run("status", "--file", str(tmp_path / "indexes.yml"))
        one, other = (list(json.loads(paths[name].read_text())["indexes"]) for name in "ab")
        assert (list(report["indexes"]), one, other) == (["a", "b", "c"], ["a", "c"], ["b"])
