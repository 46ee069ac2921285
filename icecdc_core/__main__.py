"""Run a job from the command line: `icecdc` prints a table, `python -m icecdc_core` the report as JSON."""

from __future__ import annotations

import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any

from icecdc_core.cli import COMMANDS, SERVICES, Request, help_text, parse
from icecdc_core.dependencies import installed_version
from icecdc_core.errors import ConfigError, IcecdcError
from icecdc_core.reporting.exit_states import EXIT_STATES, exit_code, failure_report, state_of
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
    return main(program=_CONSOLE)


def main(arguments: Sequence[str] | None = None, program: str = "python -m icecdc_core") -> int:
    listed = list(sys.argv[1:] if arguments is None else arguments)
    if listed[:1] == [SERVICES]:
        from icecdc_core.local.__main__ import main as services  # development only: no job needs it

        return services(listed[1:], f"{program} {SERVICES}")
    if listed[:1] in (["--help"], ["-h"], ["--version"]) or (not listed and program == _CONSOLE):
        print(f"icecdc {installed_version('icecdc')}" if listed == ["--version"] else help_text())  # noqa: T201
        return 0 if listed else EXIT_STATES["config"].code
    as_json = program != _CONSOLE or "--json" in listed
    begin, request = time.monotonic(), Request()
    job = next((name for name in listed[:1] if name in COMMANDS), None)
    facts: dict[str, Any] = {"job": job, "stage": "parameters", "run_id": uuid.uuid4().hex}
    report: Report | Mapping[str, Any]
    try:
        request = parse(listed)
        facts["report_paths"] = [request.parameters.get("report_path")]
        check_report_path(request.html, "html")
        # Others write to the standard error then.
        is_read = as_json or request.verbose or request.parameters.get("log_path") == "-"
        with hidden() if is_read else nullcontext():
            report = _many(request, facts) if request.file else _one(request, facts)
        state = report.state
    except (Exception, KeyboardInterrupt) as error:
        facts["failed"] = not isinstance(error, KeyboardInterrupt)
        if request.verbose or (facts["failed"] and state_of(error) == "failed"):
            sys.stderr.write(mask_secrets(traceback.format_exc()))
        report = failure_report(error, {**facts, "seconds": round(time.monotonic() - begin, 3)})
        for path in filter(None, facts.get("report_paths", ())):
            with suppress(ConfigError):  # the report of an older run must not stay, nor hide why this one failed
                write_report(report, path)
        _print_failure(facts["job"] or "", report)
        state = report["state"]
    if request.html:
        with suppress(ConfigError):  # it was refused above, or the exit code matters more
            write_page(report, request.html)
    if as_json:
        print_line(report_json(report))
    elif isinstance(report, Report):  # a failure is no table
        print_line(report.text())
    if facts.get("failed") and (log := keep_jvm_output()):
        print_line(f"Spark's log: {log}", sys.stderr)
    if not as_json and sys.stderr and sys.stderr.isatty():
        print_line(f"{time.monotonic() - begin:.1f} s in all", sys.stderr)
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # Python would try again when it ends, and replace the exit code
        sys.stdout = None
    return exit_code(state, facts["job"])


def _one(request: Request, facts: dict[str, Any]) -> Report:
    """Run the job of one index; the facts say how far it came."""
    facts |= {name: request.parameters.get(name) for name in ("table", "index")}
    command = COMMANDS[request.command]
    config = command.kind(**request.parameters)
    facts |= config.subject
    check_report_path(config.report_path)
    if ask := _without_spark(request):
        report = ask(config)
    else:
        spark = _session([config], request, facts)
        polls = request.command == "sync" and config.polls  # type: ignore[attr-defined]
        with stop_on_sigterm(or_interrupt=True) if polls else nullcontext(), activity(f"{request.command} is running"):
            report = command.job()(spark, config)
    if config.report_path:
        write_report(report, config.report_path)
    return report


def _many(request: Request, facts: dict[str, Any]) -> ManyReport:
    begin = time.monotonic()
    command = COMMANDS[request.command]
    kind: Any = command.kind
    configs: Mapping[str, Any] = kind.load_all(request.file, request.only, **request.parameters)
    facts["report_paths"] = [*dict.fromkeys(config.report_path for config in configs.values() if config.report_path)]
    for path in facts["report_paths"]:
        check_report_path(path)

    def write(report: ManyReport) -> None:
        for path in facts["report_paths"]:
            of_path = {name: each for name, each in report.indexes.items() if configs[name].report_path == path}
            write_report(replace(report, indexes=of_path), path)

    def on_poll(so_far: ManyReport) -> None:
        with suppress(ConfigError):  # the last one says why
            write(so_far)

    def on_failure(name: str, failure: Mapping[str, Any], trace: str) -> None:
        facts["failed"] = True
        if trace and (request.verbose or failure["state"] == "failed"):
            print_line(trace.rstrip(), sys.stderr)
        _print_failure(f"{request.command} {name}", failure)

    if ask := _without_spark(request):
        from icecdc_core.runs.cluster_status import THREADS  # no help needs it

        def answer(name: str) -> Report | dict[str, Any]:
            try:
                return ask(configs[name])
            except IcecdcError as error:
                failure = failure_report(error, {"job": request.command, **configs[name].subject})
                on_failure(name, failure, "")
                return failure

        with ThreadPool(min(THREADS, len(configs))) as pool:
            reports = dict(zip(configs, pool.map(answer, configs), strict=True))
        report = ManyReport(reports, round(time.monotonic() - begin, 3))
    else:
        from icecdc_core.jobs.many import require_one_session, run_many  # no help needs Spark

        require_one_session(configs)
        spark = _session([*configs.values()], request, facts)
        # Each report is part of the summary, which is written once.
        own = {name: config.replace(report_path="") for name, config in configs.items()}
        report = run_many(
            spark,
            command.job(),
            own,
            command=request.command,
            parallel=request.parallel,
            on_poll=on_poll,
            on_failure=on_failure,
        )
    write(report)
    return report


def _without_spark(request: Request) -> Callable[[Any], Report] | None:
    """What answers a command for one index without Spark; None: the command needs it."""
    if request.command == "wait":
        from icecdc_core.runs.wait import wait  # no help needs it

        return wait
    if request.command != "status" or request.tables:
        return None
    from icecdc_core.runs.cluster_status import cluster_status  # no help needs it

    def status(config: Any) -> Report:
        with activity("reading positions and tables"):
            return cluster_status(config, config.index if "index" in config.model_fields_set else "")

    return status


def _session(configs: Sequence[ParameterModel], request: Request, facts: dict[str, Any]) -> SparkSession:
    from icecdc_core.session.spark import get_spark  # no help needs Spark

    facts["stage"] = "session"
    with activity("starting Spark"):
        spark = get_spark(*configs, verbose=request.verbose)
    facts["stage"] = "run"
    return spark


def _print_failure(what: str, failure: Mapping[str, Any]) -> None:
    first, *problems = (" ".join(part.split()) for part in failure["message"].split("\n- "))
    if "Remedy: " not in failure["message"]:
        first = f"{first.rstrip('.')}. Remedy: {failure['remedy']}"
    first = first if first.endswith((".", ":")) else f"{first}."
    print_line("\n- ".join([f"{f'{_CONSOLE} {what}'.strip()}: {first}", *problems]), sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
