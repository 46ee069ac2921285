"""The command line `icecdc`: commands and options in, tables, JSON and exit codes out.

In: the arguments. Out: the parameters of one job, or of the same job for many indexes; and how a person reads its end.
"""

import argparse
import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel, problems_error
from icecdc_core.config.sync import InitConfig, StatusConfig, WaitConfig
from icecdc_core.explore.config import ExplainConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.ingest.config import InitIngestConfig
from icecdc_core.reporting.exit_states import EXIT_STATES
from icecdc_core.reporting.reports import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Job = Callable[["SparkSession", Any], "Report"]

SERVICES = "services"  # it runs no job
_COMMON = ("table", "index", "opensearch_url", "catalog_properties", "identifier_columns")


@dataclass(frozen=True)
class Command:
    target: str
    help: str
    example: str
    main: tuple[str, ...] = _COMMON
    kind: type[ParameterModel] = SyncConfig
    fixed: Mapping[str, str] = field(default_factory=dict)

    def job(self) -> Job:
        module, _, function = self.target.partition(":")
        job: Job = getattr(import_module(f"icecdc_core.{module}"), function)
        return job


COMMANDS: dict[str, Command] = {
    "init": Command(
        "jobs.init:write_index_file",
        "look at a table or a namespace and write an index file for it",
        "--table lake.shop --output indexes.yml",
        ("table", "output", "opensearch_url", "catalog_properties", "warehouse"),
        InitConfig,
    ),
    "init-ingest": Command(
        "jobs.init_ingest:write_ingest_file",
        "look at Kafka topics and write an ingest file for them",
        "--bootstrap-servers kafka:9092 --topics orders --namespace lake.shop",
        ("bootstrap_servers", "topics", "namespace", "output", "schema_registry_url", "catalog_properties"),
        InitIngestConfig,
    ),
    "setup": Command(
        "jobs.setup:check_setup",
        "check everything that a run needs, and list all problems",
        "--table lake.shop.orders --opensearch-url https://search:9200",
    ),
    "export": Command(
        "jobs.export:export_table",
        "write the whole table to a new index, then switch the alias to it",
        "--table lake.shop.orders --opensearch-url https://search:9200",
        (*_COMMON, "columns", "row_filter", "number_of_shards", "number_of_replicas", "keep_index", "dry_run"),
    ),
    "sync": Command(
        "jobs.poll:follow_changes",
        "write the changes since the last run; the first run exports the table",
        "--table lake.shop.orders --poll-interval-seconds 30 --max-polls 0",
        (
            *_COMMON,
            "poll_interval_seconds",
            "max_polls",
            "audit_seconds",
            "on_schema_change",
            "dry_run",
            "only_as_planned",
        ),
    ),
    "plan": Command(
        "jobs.plan:plan_index",
        "show what a sync would do with each index and what that costs; writes nothing",
        "--table lake.shop.orders --opensearch-url https://search:9200",
    ),
    "validate": Command(
        "jobs.validate:validate_table",
        "compare the index with the table",
        "--table lake.shop.orders --validate-at position",
        (*_COMMON, "validate_at", "part", "repair"),
    ),
    "repair": Command(
        "jobs.validate:validate_table",
        "compare the index with the table and correct what differs",
        "--table lake.shop.orders",
        fixed={"repair": "true"},
    ),
    "explain": Command(
        "explore.documents:explain",
        "show what happened to one document, and what has it now",
        "--table lake.shop.orders --id 4711",
        (*_COMMON, "id"),
        ExplainConfig,
    ),
    "replay": Command(
        "jobs.replay:replay_dead_letters",
        "write rejected documents again, after their cause was removed",
        "--table lake.shop.orders",
        (*_COMMON, "dead_letter_table"),
    ),
    "rollback": Command(
        "jobs.rollback:rollback_index",
        "show readers the index from before the last export again",
        "--index orders --opensearch-url https://search:9200",
        ("index", "opensearch_url", "positions_index", "table", "catalog_properties", "warehouse"),
        StatusConfig,
    ),
    "status": Command(
        "jobs.status:status_of_index",
        "show whether every index is in sync, its lag and last run",
        "--opensearch-url https://search:9200",
        ("opensearch_url", "positions_index", "table", "check", "freshness_slo", "catalog_properties", "warehouse"),
        StatusConfig,
    ),
    "wait": Command(
        "runs.wait:wait",
        "wait until searches find what a table has, without Spark",
        "--index orders --snapshot 3051729675574597004 --timeout 60s",
        ("index", "snapshot", "committed_by", "now", "timeout", "opensearch_url", "catalog_properties", "warehouse"),
        WaitConfig,
    ),
    "status --ingest": Command(
        "ingest.status:ingest_status",
        "show what an ingest has read, and what each table lacks",
        "--job orders --bootstrap-servers kafka:9092 --topics orders --table lake.shop.orders",
        ("job", "bootstrap_servers", "topics", "table", "namespace", "catalog_properties", "warehouse"),
        IngestConfig,
    ),
    "ingest": Command(
        "ingest:ingest",
        "read Kafka topics into Iceberg tables",
        "--job orders --bootstrap-servers kafka:9092 --topics orders --table lake.shop.orders",
        ("job", "bootstrap_servers", "topics", "table", "format", "mode", "catalog_properties", "warehouse"),
        IngestConfig,
    ),
}


@dataclass
class Request:
    command: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    file: str = ""
    only: list[str] = field(default_factory=list)
    parallel: int = 2
    html: str = ""
    json: bool = False
    verbose: bool = False
    tables: bool = False


def parse(arguments: Sequence[str]) -> Request:
    """Read the command and its options: ``--name value`` or ``--name=value``; a boolean needs no value."""
    command = arguments[0] if arguments else ""
    if command == "status" and "--ingest" in arguments:
        command, arguments = "status --ingest", [each for each in arguments if each != "--ingest"]
    if command not in COMMANDS:
        what = "There is no such command (not shown)" if command else "no command is given"
        raise problems_error([f"{what}. Remedy: write one of {', '.join(COMMANDS)} first, see --help."])
    given_options = ["--help" if text == "-h" else text for text in arguments[1:]]
    options = [re.sub(r"^--[^=]*", lambda match: match[0].replace("_", "-"), text) for text in given_options]
    parser = _parser(command, everything="--help" not in options)
    try:
        namespace, unknown = parser.parse_known_args(options)
    except argparse.ArgumentError as error:  # which quotes the value, that may be a secret, at its end
        text = re.sub(r"\s*['\"].*", " (not shown)", str(error).removeprefix("argument "), flags=re.DOTALL)
        raise problems_error([f"{text}. Remedy: write --name VALUE or --name=VALUE, see --help."]) from None
    if unknown:
        shown = [text for text in unknown if text.startswith("--")] or unknown[:1]
        known = re.findall(r"--[a-z-]+", parser.format_help())
        raise problems_error(_unknown(text, known) for text in shown)
    given = vars(namespace)
    own = {each.name: given.pop(each.name) for each in fields(Request) if each.name in given}
    request = Request(command, {**given, **COMMANDS[command].fixed}, **own)
    names = Counter(text.partition("=")[0] for text in options if text.startswith("--"))
    problems = [f"{name}: given twice. Remedy: give it once." for name, times in names.items() if times > 1]
    if not request.file and {"file", "only", "parallel"} & own.keys():  # the run would work on something else
        problems.append("--file: missing or empty. Remedy: name the file with the entries, or leave --only out.")
    if not all(request.only) or not 1 <= request.parallel <= 64:
        problems.append("--only: needs names without blanks, and --parallel 1 to 64. Remedy: write --only a,b.")
    for name in ("table", "index", "job"):
        if request.file and len(request.only) != 1 and given.get(name):
            problems.append(f"--{name}: given for all entries of a file. Remedy: name one with --only.")
    if problems:
        raise problems_error(problems)
    return request


def _unknown(text: str, known: Sequence[str]) -> str:
    """The problem with an argument; one that may be a secret, or have one appended to its name, is not shown."""
    option = re.sub(r"[^A-Za-z0-9-].*", "", text, flags=re.DOTALL)
    near = next(iter(difflib.get_close_matches(option, known, n=1)), "")
    shown = f"{option}: " if len(option) <= len(near) else ""
    return f"{shown}unknown option or a value without one. Remedy: {f'did you mean {near}' if near else 'see --help'}."


def _parser(job: str, everything: bool = True) -> argparse.ArgumentParser:
    """The options of a command, whose help shows everything or what fits on a page; what matters comes last."""
    command = COMMANDS[job]
    example = f"example: icecdc {job} {command.example}"
    takes_file = issubclass(command.kind, SyncConfig) or command.kind is IngestConfig
    file = "ingests.yml" if command.kind is IngestConfig else "indexes.yml"
    if takes_file:
        example += f"\n         icecdc {job} --file {file} --only orders,films"
    states = "".join(f"\n  {state.code:>2}  {name}: {state.meaning}" for name, state in EXIT_STATES.items())
    parser = argparse.ArgumentParser(
        usage=f"icecdc {job} [--name value ...]",
        description=f"{command.help[0].upper()}{command.help[1:]}." + everything * f"\n\nexit codes:{states}",
        epilog=everything * "A boolean needs no value: --dry-run.\n\n" + example,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=27, width=80),
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        exit_on_error=False,
        add_help=False,  # Python 3.13 would take -host for -h, and end with code 0
    )
    parser.add_argument("--help", action="help", help="Show the main options.")
    parser.add_argument("--help-all", action="help", help="Show all options, and the exit codes.")
    names = sorted(command.kind.model_fields, key=lambda each: each in ParameterModel.model_fields)
    for name in [*(each for each in names if each not in command.main), *command.main]:
        described = command.kind.model_fields[name]
        text = f"{described.description}{' Required.' if described.is_required() else ''}".replace("%", "%%")
        text = text if everything or name in command.main else argparse.SUPPRESS
        flag: dict[str, Any] = {"nargs": "?", "const": "true"} if described.annotation is bool else {}
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=text, **flag)
    if takes_file:
        parser.add_argument("--file", metavar="FILE", help=f"Work on all entries of a file, such as {file}.")
        parser.add_argument(
            "--only",
            metavar="NAMES",
            type=lambda text: [*map(str.strip, text.split(","))],
            help="Work on these of its entries, such as orders,films.",
        )
        parser.add_argument("--parallel", type=int, metavar="N", help="Entries at a time (1 to 64). Default: 2.")
    if job == "status":
        parser.add_argument(
            "--tables",
            action="store_true",
            help="Start Spark and ask it about the tables, also about waiting dead letters.",
        )
    parser.add_argument("--json", action="store_true", help="Print the report as one JSON object on the last line.")
    parser.add_argument("--html", metavar="FILE", help="Write the report as a page, also of a failed run.")
    parser.add_argument("--verbose", action="store_true", help="Show Spark's output, and where an error came from.")
    return parser


def help_text() -> str:
    services = {SERVICES: "start and stop OpenSearch and Kafka on this machine, for development"}
    commands = {name: each.help for name, each in COMMANDS.items()} | services
    listed = "\n".join(f"  {name:<15} {text}" for name, text in commands.items())
    return (
        "usage: icecdc COMMAND [--name value ...]\n\nKeep OpenSearch indexes in sync with Apache Iceberg tables.\n\n"
        f"{listed}\n\nicecdc COMMAND --help shows the main options of a command, --help-all all of them."
    )
