"""The command line `icecdc`: commands and options in, tables, JSON and exit codes out.

In: the arguments. Out: the parameters of one job, or of the same job for many indexes; and how a person reads its end.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.config.sync import StatusConfig
from icecdc_core.errors import ConfigError
from icecdc_core.ingest import IngestConfig
from icecdc_core.reporting.exit_states import EXIT_STATES
from icecdc_core.reporting.reports import ManyReport, Report, report_json, write_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.reporting.reports import Report


Job = Callable[["SparkSession", Any], "Report"]

SERVICES = "services"
"""The command that runs no job: it starts and stops the embedded services."""

_PLACE = ("table", "index", "opensearch_url", "catalog_properties", "warehouse", "identifier_columns")


@dataclass(frozen=True)
class Command:
    """A command that runs a job."""

    target: str
    help: str
    example: str
    main: tuple[str, ...] = _PLACE
    kind: type[ParameterModel] = SyncConfig
    fixed: Mapping[str, str] = field(default_factory=dict)
    of_one: str = ""

    @property
    def job(self) -> Job:
        """The job."""
        return self._imported(self.target.partition(":")[2])

    @property
    def job_of_one(self) -> Job:
        """The job for one index of many."""
        return self._imported(self.of_one) if self.of_one else self.job

    def _imported(self, function: str) -> Job:
        job: Job = getattr(import_module(f"icecdc_core.{self.target.partition(':')[0]}"), function)
        return job

    @property
    def takes_file(self) -> bool:
        """Whether it works on the indexes of a file."""
        return issubclass(self.kind, SyncConfig)


COMMANDS: dict[str, Command] = {
    "setup": Command(
        "jobs.setup:check_setup",
        "check everything that a run needs, and list all problems",
        "--table lake.shop.orders --opensearch-url https://search:9200",
    ),
    "smoke": Command(
        "jobs.smoke:smoke_test",
        "try export, sync and validation on scratch tables, drop them, and report what works",
        "--table lake.scratch.smoke --opensearch-url https://search:9200",
        ("table", "index", "opensearch_url", "catalog_properties", "warehouse", "report_path"),
    ),
    "export": Command(
        "jobs.export:export_table",
        "write the whole table to a new index, then switch the alias to it",
        "--table lake.shop.orders --opensearch-url https://search:9200",
        (*_PLACE, "columns", "row_filter", "number_of_shards", "number_of_replicas", "dry_run"),
    ),
    "sync": Command(
        "jobs.poll:follow_changes",
        "write the changes since the last run; the first run exports the table",
        "--table lake.shop.orders --poll-interval-seconds 30 --max-polls 0",
        (*_PLACE, "poll_interval_seconds", "max_polls", "on_schema_change", "on_history_gap", "dry_run"),
    ),
    "validate": Command(
        "jobs.validate:validate_table",
        "compare the index with the table",
        "--table lake.shop.orders --validate-at position",
        (*_PLACE, "validate_at", "repair"),
    ),
    "repair": Command(
        "jobs.validate:validate_table",
        "compare the index with the table and correct what differs",
        "--table lake.shop.orders",
        fixed={"repair": "true"},
    ),
    "replay": Command(
        "jobs.replay:replay_dead_letters",
        "write rejected documents again, after their cause was removed",
        "--table lake.shop.orders",
        (*_PLACE, "dead_letter_table"),
    ),
    "status": Command(
        "jobs.status:status",
        "show position, lag and last run of every index",
        "--opensearch-url https://search:9200",
        ("opensearch_url", "positions_index", "table", "catalog_properties", "warehouse"),
        StatusConfig,
        of_one="status_of_index",
    ),
    "ingest": Command(
        "ingest:ingest",
        "read Kafka topics into Iceberg tables",
        "--job orders --bootstrap-servers kafka:9092 --topics orders --table lake.shop.orders",
        ("job", "bootstrap_servers", "topics", "table", "format", "mode", "catalog_properties", "warehouse"),
        IngestConfig,
    ),
    "changes": Command(
        "jobs.pending:pending_changes",
        "show what each new snapshot changed and what the next sync would write",
        "--table lake.shop.orders",
    ),
}


DEFAULT_PARALLEL = 2
_MOST_PARALLEL = 64
_OPTION = re.compile(r"--[A-Za-z0-9_-]*")
_FLAGS = ("json", "verbose", "help", "version")
_OF_FILE = ("file", "only", "parallel")
_FALSE = {"", "false", "0", "no", "off", "f", "n"}
_BOOLEANS = {"true", "1", "yes", "on", "t", "y"} | _FALSE


@dataclass
class Request:
    """What the command line asks for."""

    command: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    file: str = ""
    only: list[str] = field(default_factory=list)
    parallel: int = DEFAULT_PARALLEL


def parse(arguments: Sequence[str]) -> Request:
    """Read the command and its options.

    An option is ``--name value`` or ``--name=value``. A boolean needs no value: ``--dry-run``, ``--no-dry-run``.
    """
    first = arguments[0] if arguments else ""
    kind = COMMANDS[first].kind if first in COMMANDS else SyncConfig
    request = Request()
    problems: list[str] = []
    given: dict[str, str] = {}
    left = deque(arguments)
    while left:
        text = left.popleft()
        if text == "-h":
            request.flags.add("help")
        elif not text.startswith("--"):
            if request.command:
                problems.append("There is a value without an option (not shown). Remedy: write --name value.")
            else:
                request.command = text
        elif (problem := _read(text, left, kind, request, given)) is not None:
            problems.append(problem)
    if not problems and request.flags & {"help", "version"}:
        return request
    problems += _command_problems(request.command, kind)
    for name in _OF_FILE:
        if name in given and (problem := _file_option(request, name, given.pop(name))):
            problems.append(problem)
    request.parameters = given
    problems += [] if problems else _combination_problems(request)
    if problems:
        raise ConfigError(f"{len(problems)} options are wrong", problems=problems)
    request.parameters |= COMMANDS[request.command].fixed
    return request


def _read(
    text: str, left: deque[str], kind: type[ParameterModel], request: Request, given: dict[str, str]
) -> str | None:
    """Read one option, and its value from the arguments that are left; returns what is wrong with it."""
    types = {parameter.name: parameter.type for parameter in kind.parameters()}
    if issubclass(kind, SyncConfig):
        types |= dict.fromkeys(_OF_FILE, "str")
    option, equals, value = text.partition("=")
    name = option[2:].replace("-", "_")
    positive = name.removeprefix("no_")
    if name in _FLAGS or (name not in types and types.get(positive) == "bool"):
        if equals:
            return f"{option}: takes no value. Remedy: leave it out."
        if name in _FLAGS:
            request.flags.add(name)
            return None
        return _put(given, positive, "false", option)
    if name not in types:
        match = _OPTION.match(text)
        if match is not None and match[0] == text:
            _ = left and left.popleft()  # its value, whatever that looks like
        return _unknown_option(match[0] if match else "--", [*types, *_FLAGS])
    if not equals:
        if types[name] == "bool":
            value = left.popleft() if left and left[0].lower() in _BOOLEANS else "true"
        elif not left or left[0].startswith("--"):
            return f"argument {option}: expected one argument. Remedy: write {option} VALUE or {option}=VALUE."
        else:
            value = left.popleft()
    return _put(given, name, value, option)


def _put(given: dict[str, str], name: str, value: str, option: str) -> str | None:
    """Keep the value of an option; returns the problem if it has one already."""
    if name in given:
        return f"{option}: given twice. Remedy: keep one of them."
    given[name] = value
    return None


def _unknown_option(option: str, known: Sequence[str]) -> str:
    """The problem with an option; one that may have a secret appended to its name is not shown."""
    name = option[2:].replace("-", "_")
    near = next(iter(difflib.get_close_matches(name.removeprefix("no_"), known, n=1)), "")
    if name in known:
        return f"{option}: its value is not separated from it. Remedy: write {option} VALUE or {option}=VALUE."
    hint = f"did you mean --{near.replace('_', '-')}" if near else "see --help for all of them"
    shown = f"{option}: unknown option" if len(name) <= len(near) else "unknown option (not shown)"
    return f"{shown}. Remedy: {hint}."


def _command_problems(command: str, kind: type[ParameterModel]) -> list[str]:
    if not command:
        return ["no command is given. Remedy: see --help."]
    if command == SERVICES or (command in COMMANDS and COMMANDS[command].kind is not kind):
        # The options that were read are those of another command.
        return [f"{command}: comes after options. Remedy: write the command first."]
    if command not in COMMANDS:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        remedy = f"did you mean {near[0]}" if near else f"name one of {', '.join(COMMANDS)}"
        return [f"There is no such command (not shown). Remedy: {remedy}."]
    return []


def _file_option(request: Request, name: str, value: str) -> str | None:
    """Put an option about many indexes into the request; returns what is wrong with it."""
    if name == "file":
        if not value.strip():  # as of a variable that is not set: the run would work on something else
            return "--file: is empty. Remedy: name the file with the indexes, or leave the option out."
        request.file = value
    elif name == "only":
        request.only = [index.strip() for index in value.split(",")]
        if not all(request.only):
            return "--only: has a blank name. Remedy: write a,b, or leave the option out for all indexes."
    elif not value:
        request.parallel = DEFAULT_PARALLEL
    elif not re.fullmatch(r"\d{1,3}", value) or not 1 <= int(value) <= _MOST_PARALLEL:
        return f"--parallel: is not a number from 1 to {_MOST_PARALLEL} (not shown). Remedy: write --parallel 4."
    else:
        request.parallel = int(value)
    return None


def _combination_problems(request: Request) -> list[str]:
    """Options that do not fit together."""
    problems = []
    command, many = COMMANDS[request.command], len(request.only) != 1
    if not request.file and (request.only or request.parallel != DEFAULT_PARALLEL):
        problems.append("--only and --parallel: given without --file. Remedy: name the file with the indexes.")
    for name in ("table", "index"):
        if request.file and many and request.parameters.get(name):
            problems.append(f"--{name}: given for all indexes of a file. Remedy: name one index with --only.")
    is_dry_run = request.parameters.get("dry_run", "").lower() not in _FALSE
    if is_dry_run and "repair" in command.fixed:
        problems.append("--dry-run: a repair writes. Remedy: run validate; it shows what a repair would correct.")
    if is_dry_run and request.command == "replay":
        problems.append("--dry-run: a replay writes. Remedy: run status; it counts the open dead letters.")
    if "repair" in command.fixed and request.parameters.get("repair", "").lower() in _FALSE - {""}:
        problems.append("--no-repair: this command repairs. Remedy: run validate.")
    return problems


_COMMON = ("table", "opensearch_url")


def overview(program: str) -> str:
    """Return the help of the program: every command with an example, and the options that matter most."""
    lines = [
        f"usage: {program} COMMAND [--name value ...]",
        "",
        "Keep OpenSearch indexes in sync with Apache Iceberg tables.",
        "",
        "commands:",
    ]
    for name, command in COMMANDS.items():
        lines += [f"  {name:<9} {command.help}", f"            {program} {name} {command.example}"]
    lines += [
        f"  {SERVICES:<9} start and stop OpenSearch and Kafka on this machine, for development",
        f"            {program} {SERVICES} up",
        "",
        _options("options", SyncConfig, _COMMON),
        _further(),
        f"{program} COMMAND --help lists all options of a command. --version shows the version.",
    ]
    return "\n".join(lines)


def command_help(program: str, name: str) -> str:
    """Return the help of one command: an example, the parameters that matter, then all others."""
    command = COMMANDS[name]
    others = tuple(each.name for each in command.kind.parameters() if each.name not in command.main)
    states = "\n".join(f"  {state.code:>2}  {state_name}: {state.meaning}" for state_name, state in EXIT_STATES.items())
    return "\n".join(
        [
            f"usage: {program} {name} [--name value ...]",
            "",
            f"{command.help[0].upper()}{command.help[1:]}.",
            "",
            f"example: {program} {name} {command.example}",
            *_file_example(program, name, command),
            "",
            _options("main options", command.kind, command.main),
            _further(command.takes_file),
            _options("all other options", command.kind, others),
            f"exit codes:\n{states}",
        ]
    )


def _file_example(program: str, name: str, command: Command) -> list[str]:
    return [f"         {program} {name} --file indexes.yml --only orders,films"] if command.takes_file else []


def _options(title: str, kind: type, names: tuple[str, ...]) -> str:
    """The parameters of these names as a section of the help."""
    parser = _parser()
    group = parser.add_argument_group(title)
    texts = {parameter.name: parameter for parameter in kind.parameters()}  # type: ignore[attr-defined]
    for name in names:
        found = kind.model_fields[name]  # type: ignore[attr-defined]
        required = " Required." if found.is_required() else ""
        examples = "".join(f" Example: {example}" for example in found.examples or ())
        is_flag = texts[name].type == "bool"
        option = f"--{name.replace('_', '-')}"
        shown = [option, f"--no-{option[2:]}"] if is_flag else [option]
        text = (texts[name].help + required + examples).replace("%", "%%")
        if is_flag:
            group.add_argument(*shown, dest=name, action="store_true", help=text)
        else:
            group.add_argument(*shown, dest=name, metavar="VALUE", help=text)
    return _body(parser)


def _further(takes_file: bool = True) -> str:
    parser = _parser()
    if takes_file:
        group = parser.add_argument_group("many indexes")
        group.add_argument("--file", metavar="FILE", help="Work on all indexes of a file. Example: indexes.yml")
        group.add_argument("--only", metavar="NAMES", help="Work on these indexes of the file. Example: orders,films")
        group.add_argument(
            "--parallel",
            metavar="N",
            help=f"How many indexes of the file to process at a time (1 to 64). Default: {DEFAULT_PARALLEL}.",
        )
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="Print the report as one JSON object on the last line.")
    group.add_argument("--verbose", action="store_true", help="Show Spark's own output, and where an error came from.")
    return _body(parser)


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS)


def _body(parser: argparse.ArgumentParser) -> str:
    return parser.format_help().strip("\n") + "\n"


def print_report(report: Report | Mapping[str, Any], as_json: bool) -> None:
    """Print a report: as one JSON object on one line, or as a table; a failure has no table."""
    if as_json:
        print(report_json(dict(report) if isinstance(report, Mapping) else report.to_dict()), flush=True)  # noqa: T201
    elif isinstance(report, Report):
        print(report.text(), flush=True)  # noqa: T201


def print_failure(program: str, message: str, remedy: str = "", log: str = "") -> None:
    """Print why a run failed, with the remedy and Spark's log, as one line on the standard error."""
    text = message if not remedy or "Remedy: " in message else f"{message.rstrip('.')}. Remedy: {remedy}"
    text = re.sub(r"\s+", " ", text.replace("\n- ", " ")).strip()
    text += f"{'' if text.endswith('.') else '.'} Spark's log: {log}" if log else ""
    sys.stderr.write(f"{program}: {text}\n")
    sys.stderr.flush()


def write_summaries(report: ManyReport, configs: Mapping[str, SyncConfig]) -> None:
    """Write the summary of the indexes that name a `report_path` to it."""
    for path in dict.fromkeys(config.report_path for config in configs.values() if config.report_path):
        names = [name for name, config in configs.items() if config.report_path == path]
        write_report(report.of(names), path)


def replace_report(report: Mapping[str, Any], path: str) -> None:
    """Write the failure of a job that did not begin: the report of an older run must not stay."""
    if path:
        with suppress(ConfigError):  # it must not hide why the run failed
            write_report(report, path)
