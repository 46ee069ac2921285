"""Run a job from the command line or a scheduler.

Example: icecdc sync --table lake.shop.orders --opensearch-url https://search:9200

Every parameter is an option: --name value. Lists and mappings are text: --columns "id,name",
--catalog-properties '{"type":"rest","uri":"https://catalog:8181"}'. The exit code follows from the state in the report.

`icecdc` prints a table, with --json the report as one JSON object on the last line of the standard output.
`python -m icecdc_core` always prints that object, also when the run fails.
"""

from __future__ import annotations

import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from icecdc_core.cli import (
    COMMANDS,
    SERVICES,
    Request,
    help_text,
    parse,
    print_failure,
    write_summaries,
)
from icecdc_core.config import SyncConfig
from icecdc_core.dependencies import installed_version
from icecdc_core.errors import ConfigError, IcecdcError
from icecdc_core.reporting.exit_states import exit_code, failure_of, failure_report, state_of
from icecdc_core.reporting.progress import activity, hidden, print_line
from icecdc_core.reporting.reports import ManyReport, Report, check_report_path, report_json, write_page, write_report
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.java import keep_jvm_output
from icecdc_core.session.processes import stop_on_sigterm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config.model import ParameterModel

_CONSOLE = "icecdc"


def console() -> int:
    """Run the console command `icecdc`."""
    return main(program=_CONSOLE)


def main(arguments: Sequence[str] | None = None, program: str = "python -m icecdc_core") -> int:
    """Run one job, print its report and return its exit code."""
    listed = list(sys.argv[1:] if arguments is None else arguments)
    if listed[:1] == [SERVICES]:
        from icecdc_core.local.__main__ import main as services  # development only: no job needs it

        return services(listed[1:], f"{program} {SERVICES}", activity)
    if not listed and program == _CONSOLE:
        print(help_text(program))  # noqa: T201
        return exit_code("config")
    as_json = program != _CONSOLE or "--json" in listed
    begin = time.monotonic()
    facts: dict[str, Any] = {"job": listed[0] if listed and listed[0] in COMMANDS else None, "run_id": uuid.uuid4().hex}
    facts["stage"] = "parameters"
    request = Request()
    report: Report | Mapping[str, Any]
    try:
        request = parse(listed)
        if request.flags & {"help", "version"}:
            version = f"icecdc {installed_version('icecdc')}"
            whole = help_text(program, request.command, whole="help-all" in request.flags)
            print(whole if "help" in request.flags else version)  # noqa: T201
            raise SystemExit(0)
        facts["job"] = request.command
        check_report_path(request.html, "html")
        # Others write to the standard error then.
        is_read = as_json or "verbose" in request.flags or request.parameters.get("log_path") == "-"
        with hidden() if is_read else nullcontext():
            report = _many(request, facts) if request.file else _one(request, facts)
        state = report.state
    except (Exception, KeyboardInterrupt) as error:
        is_unexpected = state_of(error) == "failed" and not isinstance(error, KeyboardInterrupt)
        if is_unexpected or "verbose" in request.flags:
            sys.stderr.write(mask_secrets(traceback.format_exc()))
        seconds = round(time.monotonic() - begin, 3)
        report = failure_of(error) or failure_report(error, {**facts, "seconds": seconds})
        for path in filter(None, facts.get("report_paths", [request.parameters.get("report_path")])):
            with suppress(ConfigError):  # the report of an older run must not stay, nor hide why this one failed
                write_report(report, path)
        print_failure(f"{_CONSOLE} {facts['job']}" if facts["job"] else _CONSOLE, report)
        state, facts["failed"] = report["state"], not isinstance(error, KeyboardInterrupt)
    if request.html:
        with suppress(ConfigError):  # it was refused above, or the exit code matters more
            write_page(report, request.html)
    if as_json:
        print(report_json(report), flush=True)  # noqa: T201
    elif isinstance(report, Report):  # a failure is no table
        print(report.text(), flush=True)  # noqa: T201
    if facts.get("failed") and (log := keep_jvm_output()):
        print_line(f"Spark's log: {log}", sys.stderr)
    if not as_json and sys.stderr and sys.stderr.isatty():
        start = f", {facts['spark_seconds']:.1f} s of them to start Spark" if "spark_seconds" in facts else ""
        print_line(f"{time.monotonic() - begin:.1f} s in all{start}", sys.stderr)
    return exit_code(state)


def _one(request: Request, facts: dict[str, Any]) -> Report:
    """Run the job of one index; the facts say how far it came."""
    command = COMMANDS[request.command]
    facts |= {name: request.parameters.get(name) for name in ("table", "index")}
    config = command.kind(**request.parameters)
    facts |= config.subject
    check_report_path(config.report_path)
    if _is_without_spark(request):
        report = _cluster_status(config)
    else:
        spark = _session([config], request, facts)
        polls = request.command == "sync" and config.polls  # type: ignore[attr-defined]
        with stop_on_sigterm(or_interrupt=True) if polls else nullcontext(), activity(f"{request.command} is running"):
            report = command.job()(spark, config)
    if config.report_path:
        write_report(report, config.report_path)
    return report


def _many(request: Request, facts: dict[str, Any]) -> ManyReport:
    """Run the job of each index of a file; the facts say how far it came."""
    command = COMMANDS[request.command]
    configs: Mapping[str, SyncConfig] = SyncConfig.load_all(request.file, request.only, **request.parameters)
    facts["report_paths"] = list(dict.fromkeys(config.report_path for config in configs.values()))
    for config in configs.values():
        check_report_path(config.report_path)

    def on_poll(so_far: ManyReport) -> None:
        with suppress(ConfigError):  # the last one says why
            write_summaries(so_far, configs)

    def on_failure(name: str, failure: Mapping[str, Any], trace: str) -> None:
        facts["failed"] = True
        sys.stderr.write(trace)
        print_failure(f"{_CONSOLE} {request.command} {name}", failure)

    if _is_without_spark(request):
        report = _cluster_statuses(configs, on_failure)
    else:
        from icecdc_core.jobs.many import require_one_session, run_many

        require_one_session(configs)
        spark = _session([*configs.values()], request, facts)
        # Each report is part of the summary, which is written once.
        own = {name: config.replace(report_path="") for name, config in configs.items()}
        job, parallel = command.job(of_many=True), request.parallel
        watch: dict[str, Any] = {"on_poll": on_poll, "on_failure": on_failure}
        report = run_many(spark, job, own, command=request.command, parallel=parallel, **watch)
    write_summaries(report, configs)
    return report


def _is_without_spark(request: Request) -> bool:
    """Whether it is a status of what the cluster knows: nobody asks for the tables, and no session is there anyway."""
    if request.command != "status" or "tables" in request.flags:
        return False
    if sys.modules.get("pyspark") is None:
        return True
    from icecdc_core.session import running_session

    return running_session() is None


def _cluster_status(config: Any, index: str = "") -> Report:
    from icecdc_core.runs.cluster_status import cluster_status

    with activity("reading the positions"):
        return cluster_status(config, index)


def _cluster_statuses(configs: Mapping[str, SyncConfig], on_failure: Callable[..., object]) -> ManyReport:
    begin, reports = time.monotonic(), dict[str, Report | dict[str, Any]]()
    for name, config in configs.items():
        try:
            reports[name] = _cluster_status(config, config.index)
        except IcecdcError as error:
            reports[name] = failure = failure_report(error, {"job": "status", **config.subject})
            on_failure(name, failure, "")
    return ManyReport(reports, round(time.monotonic() - begin, 3))


def get_spark(*configs: ParameterModel, verbose: bool = False) -> SparkSession:
    """Return the session of `icecdc_core.get_spark`; Spark is imported here, because no help needs it."""
    from icecdc_core.session import get_spark

    return get_spark(*configs, verbose=verbose)


def _session(configs: Sequence[ParameterModel], request: Request, facts: dict[str, Any]) -> SparkSession:
    begin, facts["stage"] = time.monotonic(), "session"
    with activity("starting Spark"):
        spark = get_spark(*configs, verbose=True) if "verbose" in request.flags else get_spark(*configs)
    facts |= {"spark_seconds": time.monotonic() - begin, "stage": "run"}
    return spark


if __name__ == "__main__":
    sys.exit(main())
