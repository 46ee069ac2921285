"""Every run of the command line ends with one JSON report on the last line of the standard output; no Spark."""

from __future__ import annotations

import json

import pytest

import icecdc_core.__main__ as command_line
from icecdc_core.cli import COMMANDS, parse
from icecdc_core.config import SyncConfig
from icecdc_core.config.sync import StatusConfig
from icecdc_core.errors import IcecdcError

GIVEN = ["--table", "lake.ns.t", "--opensearch-url", "http://127.0.0.1:9"]
INGEST = ["--job", "j", "--bootstrap-servers", "127.0.0.1:9", "--topics", "a", "--table", "lake.ns.t"]
JOBS = list(COMMANDS)
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
            ([], "no command is given"),
            (["snyc", *GIVEN], "There is no such command"),
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
        assert (caught.value.code, len(printed.splitlines()) < 40, "icecdc_core services up" in printed) == (
            0,
            True,
            True,
        )
        assert [job for job in JOBS if f" {job} --" not in printed] == []


class DescribeOptions:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["--dry-run"], {"dry_run": "true"}),
            (["--no-dry-run"], {"dry_run": "false"}),
            (["--repair", "true"], {"repair": "true"}),
            (["--repair=false"], {"repair": "false"}),
            (["--repair", "TRUE", "--dry_run"], {"repair": "TRUE", "dry_run": "true"}),
            (["--repair", ""], {"repair": ""}),
            (["--start-from", "-12"], {"start_from": "-12"}),
            (["--log-path", "-"], {"log_path": "-"}),
            (["--columns=a,b"], {"columns": "a,b"}),
        ],
    )
    def it_reads_values_and_flags(self, arguments, expected):
        assert parse(["validate", *arguments]).parameters == expected

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["sync", "--no-table"], "unknown option"),
            (["sync", "--json=hunter2"], "--json: ignored explicit argument (not shown)"),
            (["sync", "--opensearch-password:hunter2"], "--opensearch-password: unknown option"),
            (["repair", "--no-repair"], "--no-repair: this command repairs"),
            (["repair", "--repair", "False"], "--no-repair: this command repairs"),
            (["sync", "--no-dry-run=hunter2"], "--no-dry-run: ignored explicit argument (not shown)"),
            (["sync", *GIVEN, "--dry-run", "often"], "dry_run: input should be a valid boolean"),
            (["sync", "--only", "a"], "given without --file"),
            (["sync", "--file", "f.yml", "--parallel", "hunter2"], "--parallel: invalid int value: (not shown)"),
            (["sync", "--file", "f.yml", "--parallel", "0"], "--parallel: is not a number from 1 to 64"),
            (["sync", "--file", "f.yml", "--only", "a,,b"], "--only: has a blank name"),
            (["sync", "--file", "f.yml", "--only", ""], "--only: has a blank name"),
            (["sync", "--file", "f.yml", "--only="], "--only: has a blank name"),
            (["sync", "--table", "lake.ns.t", "--file", ""], "--file: is empty"),
            (["sync", "--file", "f.yml", "--only", "a", "--only", "hunter2"], "--only: given twice"),
            (["sync", "--table", "a.b.c", "--table=a.b.hunter2"], "--table: given twice"),
            (["sync", "--table", "a.b.c", "--dry-run", "--no-dry-run"], "--no-dry-run: given twice"),
            (["sync", "--file", "f.yml", "--table", "lake.ns.hunter2"], "--table: given for all indexes of a file"),
            (["ingest", "--file", "f.yml"], "unknown option"),
            (["repair", "--table", "lake.ns.t", "--dry-run"], "--dry-run: repair writes"),
            (["replay", "--table", "lake.ns.t", "--dry-run"], "--dry-run: replay writes"),
            (["--table", "lake.ns.t", "ingest"], "Remedy: write the command first"),
            (["statsu"], "did you mean status"),
            (["sync", "--file", "/no/such/indexes.yml"], "The index file cannot be read"),
        ],
    )
    def it_refuses_what_does_not_fit(self, run, arguments, words):
        code, report, printed = run(*arguments)
        assert (code, words in report["message"], "unter2" in printed) == (2, True, False)

    def it_lets_options_go_before_what_the_file_says(self, tmp_path):
        path = tmp_path / "indexes.yml"
        path.write_text("defaults: {max_polls: 3}\nindexes: {t: {table: lake.ns.t}, u: {table: lake.ns.u}}\n")
        request = parse(["sync", "--file", str(path), "--only", "u", "--max-polls", "5"])
        configs = SyncConfig.load_all(request.file, request.only, **request.parameters)
        assert {name: config.max_polls for name, config in configs.items()} == {"u": 5}


class DescribeTheConsoleCommand:
    def it_prints_one_line_for_a_failure(self, capsys):
        code = command_line.main(["sync", "--max-polls", "-1"], "icecdc")
        printed = capsys.readouterr()
        assert (code, printed.out, printed.err.count("\n")) == (2, "", 1)
        assert printed.err.startswith("icecdc sync: 2 parameters are wrong: table: missing. Remedy: ")

    def it_prints_the_failure_as_json_when_asked_to(self, capsys):
        command_line.main(["sync", "--json"], "icecdc")
        printed = capsys.readouterr()
        assert (json.loads(printed.out)["state"], printed.err.count("\n")) == ("config", 1)

    def it_shows_its_version(self, capsys):
        with pytest.raises(SystemExit) as caught:
            command_line.main(["--version"], "icecdc")
        assert (caught.value.code, capsys.readouterr().out.startswith("icecdc ")) == (0, True)

    @pytest.mark.parametrize("job", JOBS)
    def it_explains_each_command_with_an_example_and_every_parameter(self, capsys, job):
        with pytest.raises(SystemExit):
            command_line.main([job, "--help"], "icecdc")
        printed = capsys.readouterr().out
        names = [f"--{each.name.replace('_', '-')}" for each in COMMANDS[job].kind.parameters()]
        assert ([name for name in names if name not in printed], f"example: icecdc {job} --" in printed) == ([], True)
        assert printed.index("main options") < printed.index("all other options")

    def it_offers_the_embedded_services(self, capsys):
        with pytest.raises(SystemExit) as caught:
            command_line.main(["services", "--help"], "icecdc")
        assert (caught.value.code, "usage: icecdc services" in capsys.readouterr().out) == (0, True)


class DescribeExamples:
    @pytest.mark.parametrize("job", JOBS)
    def it_can_be_run_as_shown(self, job):
        request = parse([job, *COMMANDS[job].example.split()])
        assert COMMANDS[job].kind(**request.parameters).catalog == "lake"


class DescribeStatusWithoutATable:
    def it_needs_no_table(self):
        config = StatusConfig(opensearch_url="http://127.0.0.1:9")
        assert (config.catalog, config.subject) == ("lake", {"table": "", "index": ""})

    def it_takes_one_for_its_catalog(self):
        config = StatusConfig(table="pond.ns.t")
        assert (config.catalog, config.subject) == ("pond", {"table": "pond.ns.t", "index": "t"})


class DescribeAnUnexpectedError:
    @pytest.mark.parametrize("error", [KeyError("hidden"), KeyboardInterrupt(), IcecdcError("odd")])
    def it_ends_with_a_report(self, run, monkeypatch, error):
        def broken(config):
            raise error

        monkeypatch.setattr(command_line, "get_spark", broken)
        code, report, printed = run("sync", *GIVEN)
        assert (code, report["state"], report["stage"], report["index"]) == (1, "failed", "session", "t")
        is_unexpected = not isinstance(error, KeyboardInterrupt)
        assert (report["error"], "Traceback" in printed) == (type(error).__name__, is_unexpected)
        assert [name for name in FILLED if not report[name] and report[name] != 0] == []

    def it_says_plainly_that_it_was_interrupted(self, capsys, monkeypatch):
        def interrupted(config):
            raise KeyboardInterrupt

        monkeypatch.setattr(command_line, "get_spark", interrupted)
        code = command_line.main(["sync", *GIVEN], "icecdc")
        (line,) = capsys.readouterr().err.splitlines()
        assert (code, line.startswith("icecdc sync: The run was interrupted. Remedy: run it again")) == (1, True)
        assert "report it" not in line

    def it_shows_no_password_of_a_url_in_its_traceback(self, run, monkeypatch):
        def broken(config):
            raise RuntimeError("cannot open jdbc:postgresql://icecdc:hunter2@db/lake?password=hunter2")

        monkeypatch.setattr(command_line, "get_spark", broken)
        _, _, printed = run("sync", *GIVEN)
        assert ("RuntimeError: cannot open" in printed, "hunter2" in printed) == (True, False)

    def it_replaces_the_report_that_the_file_names(self, run, monkeypatch, tmp_path):
        def broken(*configs):
            raise IcecdcError("Spark did not start")

        monkeypatch.setattr(command_line, "get_spark", broken)
        report, file = tmp_path / "report.json", tmp_path / "indexes.yml"
        report.write_text('{"state": "ok"}')
        file.write_text(f"defaults: {{report_path: {report}}}\nindexes: {{t: {{table: lake.ns.t}}}}\n")
        run("sync", "--file", str(file))
        assert json.loads(report.read_text())["message"].startswith("Spark did not start")

    @pytest.mark.parametrize(
        ("path", "wrong", "replaced"),
        [
            ("{report}", "tabel: lake.ns.t", True),
            ("{report}", "table: lake.ns.t, max_polls: many", True),
            ("${{env:ICECDC_TEST_UNSET}}{report}", "table: lake.ns.t", False),
        ],
    )
    def it_replaces_the_report_that_a_wrong_file_names(self, run, monkeypatch, tmp_path, path, wrong, replaced):
        monkeypatch.delenv("ICECDC_TEST_UNSET", raising=False)
        report, file = tmp_path / "report.json", tmp_path / "indexes.yml"
        report.write_text('{"state": "ok"}')
        named = path.format(report=report)
        file.write_text(f'defaults: {{report_path: "{named}"}}\nindexes: {{t: {{{wrong}}}}}\n')
        code, _, _ = run("sync", "--file", str(file))
        assert (code, json.loads(report.read_text())["state"]) == (2, "config" if replaced else "ok")


class DescribeALongReason:
    def it_is_cut(self):
        text = str(IcecdcError("It was refused", subject="row_filter", value="x" * 200_000))
        assert (len(text) < 2200, "(200,002 characters)" in text) == (True, True)
