"""The pages of docs/ that are made from the code: errors, metrics, reports and commands."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import icecdc_core
from icecdc_core import errors
from icecdc_core.cli import COMMANDS, SERVICES
from icecdc_core.errors import IcecdcError
from icecdc_core.explore.report import ExploreReport
from icecdc_core.ingest import IngestReport
from icecdc_core.jobs.pending import PendingChanges
from icecdc_core.jobs.setup import SetupReport
from icecdc_core.jobs.smoke import SmokeReport
from icecdc_core.jobs.status import IndexStatus, StatusReport
from icecdc_core.reporting.exit_states import EXIT_STATES, state_of
from icecdc_core.reporting.instrumentation import failure_report
from icecdc_core.reporting.metrics import METRICS, RunMetrics
from icecdc_core.reporting.reports import ManyReport, RunReport, ValidationReport

PACKAGE = Path(icecdc_core.__file__).parent
MADE = "<!-- made from the code: ICECDC_UPDATE_DOCS=1 pytest tests/unit/project rewrites it -->"
ERRORS = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, IcecdcError) and kind is not IcecdcError
]
REPORTS = {
    RunReport: "From `export`, `sync` and `replay`.",
    ValidationReport: "From `validate` and `repair`.",
    SetupReport: "From `setup`.",
    SmokeReport: "From `smoke`.",
    PendingChanges: "From `changes`.",
    StatusReport: "From `status`.",
    IndexStatus: "An entry of `indexes` in a status report.",
    IngestReport: "From `ingest`.",
    ExploreReport: "From the notebook [`50_explore`](explore.md).",
    ManyReport: "From every command with `--file`.",
}
FAILURE = {
    "job": "The command; null if there was none.",
    "table": "`catalog.namespace.table`; null if no table is known.",
    "index": "The alias that readers use; null if no index is known.",
    "run_id": "Identifies the run in logs.",
    "seconds": "Seconds the run took.",
    "stage": "The stage in which it failed.",
    "state": "How the run ended, see [exit codes](operations.md#how-a-run-ended).",
    "exit_code": "The exit code of the state.",
    "error": "The class of the [error](errors.md).",
    "message": "What is wrong, with the value found.",
    "remedy": "What to do.",
}


def errors_page() -> str:
    """The page of the errors: what each means, what it says, what to do."""
    lines = ["# Errors", "", MADE, ""]
    lines += [
        "All errors are in `icecdc_core.errors` and derive from `IcecdcError`. An error says what is wrong, then the",
        "parameter, table or index with the value found, then the remedy. `…` stands for what depends on the case.",
        "[How a run ended](operations.md#how-a-run-ended) says what a scheduler should do.",
    ]
    said = _said()
    for kind in ERRORS:
        base = kind.__mro__[1]
        state = state_of(kind("made for the documentation"))
        lines += ["", f"## {kind.__name__}", "", _plain(inspect.cleandoc(kind.__doc__ or "").partition("\n\nArgs:")[0])]
        also = f" It is a [{base.__name__}](#{base.__name__.lower()})." if base is not IcecdcError else ""
        lines += ["", f"State `{state}`, exit code {EXIT_STATES[state].code}: {EXIT_STATES[state].action}.{also}"]
        if said[kind.__name__]:
            rows = [f"| {_cell(message)} | {_cell(remedy)} |" for message, remedy in said[kind.__name__]]
            lines += ["", "| Message | What to do |", "|---|---|", *dict.fromkeys(rows)]
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """The page of the metrics."""
    facts = {"job": "sync", "table": "t", "index": "i", "state": "ok", "lag_snapshots": 1, "lag_seconds": 1.0}
    facts |= {"stage_seconds": {"write": 1.0}}
    facts |= dict.fromkeys(("upserts", "deletes", "already_applied", "rejected", "missing", "extra", "stale"), 1)
    labels: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for family in RunMetrics(facts, 1.0).collect():
        for sample in family.samples:
            for name in set(sample.labels) - {"icecdc_job", "job", "table", "index"}:
                labels[family.name][name].add(sample.labels[name])
    lines = ["# Metrics", "", MADE, ""]
    lines += [
        "All metrics are gauges of the last run. Each has the labels `table`, `index`, `job` and `icecdc_job`; some "
        "have one more.",
        "[Monitoring](monitoring.md#metrics) says how they are published, and what to alert on.",
        "",
        "| Metric | Unit | What it says |",
        "|---|---|---|",
        *(f"| `{metric.name}` | {metric.unit} | {metric.help} |" for metric in METRICS),
        "",
        "## Labels",
        "",
        "| Label | Metric | Values |",
        "|---|---|---|",
    ]
    for metric in METRICS:
        for label, values in sorted(labels[metric.name].items()):
            shown = "the names of the stages" if label == "stage" else ", ".join(f"`{each}`" for each in sorted(values))
            lines.append(f"| `{label}` | `{metric.name}` | {shown} |")
    return "\n".join(lines) + "\n"


def reports_page() -> str:
    """The page of the JSON reports."""
    lines = ["# Reports", "", MADE, ""]
    lines += [
        "Every run ends with a report. Python returns it as an object; `--json`, `report_path` and the notebooks give",
        "it as one JSON object with these fields. Every report also has `state`, see",
        "[exit codes](operations.md#how-a-run-ended).",
    ]
    for kind, origin in REPORTS.items():
        lines += ["", f"## {kind.__name__}", "", f"{_plain((kind.__doc__ or '').splitlines()[0])} {origin}", ""]
        lines += ["| Field | Type | Meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {type_} | {_cell(meaning)} |" for name, type_, meaning in report_fields(kind)]
    lines += ["", "## A failed run", "", "The report of a run that failed, whatever the command."]
    lines += ["", "| Field | Meaning |", "|---|---|"]
    lines += [f"| `{name}` | {FAILURE[name]} |" for name in failure_report(ValueError(), {})]
    return "\n".join(lines) + "\n"


def report_fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a report as its JSON has them: name, type, meaning."""
    texts = _attributes(kind)
    if kind is StatusReport:
        texts["indexes"] = "The [status](#indexstatus) of each index."
    for each in fields(kind):
        if each.repr:
            yield each.name, _json_type(str(each.type)), texts[each.name]
    if kind is IngestReport:
        yield "tables_behind", "number", "How many tables could not be written."


def commands_page() -> str:
    """The page of the commands."""
    lines = ["# Commands", "", MADE, ""]
    lines += [
        "A command takes options, `--name value` or `--name=value`. Every [parameter](parameters.md) is an option:",
        "`identifier_columns` is `--identifier-columns`. A boolean needs no value: `--dry-run`, `--no-dry-run`. "
        "Each option is given once. An empty value means the default; an empty `--file`, `--only` or `--parallel` is "
        "an error. A value that begins with `-` needs the `=`.",
        "`--help` after a command lists all of them. What a command prints is in",
        "[operations](operations.md#jobs-from-a-command-line), and what its JSON contains in [reports](reports.md).",
        "",
        "| Option | Meaning |",
        "|---|---|",
        "| `--file FILE` | Work on all indexes of an [index file](indexes.md). |",
        "| `--only NAMES` | Work on these indexes of the file, `a,b`. |",
        "| `--parallel N` | How many indexes of the file to process at a time (1 to 64). |",
        "| `--json` | Print the report as one JSON object on the last line. |",
        "| `--verbose` | Show Spark's own output, and where an error came from. |",
    ]
    for name, command in COMMANDS.items():
        page = "kafka.md#parameters" if name == "ingest" else "parameters.md"
        lines += ["", f"## {name}", "", f"{command.help[0].upper()}{command.help[1:]}.", "", "```console"]
        lines += [f"$ icecdc {name} {command.example}"]
        lines += [f"$ icecdc {name} --file indexes.yml --only orders,films"] if command.takes_file else []
        options = ", ".join(f"`--{each.replace('_', '-')}`" for each in command.main)
        lines += ["```", "", f"Main options: {options}. [All of them]({page})."]
    lines += ["", f"## {SERVICES}", "", "Start and stop OpenSearch and Kafka on this machine, for development."]
    for name, text, options in services():
        lines += ["", f"`icecdc {SERVICES} {name}`: {text}.", ""]
        lines += [f"- `{option}`: {meaning}" for option, meaning in options]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


PAGES = {"errors.md": errors_page, "metrics.md": metrics_page, "reports.md": reports_page, "commands.md": commands_page}
"""The page that each function makes."""


def _attributes(kind: type) -> dict[str, str]:
    """The attributes in a Google-style docstring."""
    _, _, section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    section = section.partition("\n\n")[0]
    found = re.findall(r"^    (\w+): ((?:.*(?:\n {8}.*)*))", section, re.MULTILINE)
    return {name: _plain(re.sub(r"\s+", " ", text)) for name, text in found}


def _plain(text: str) -> str:
    return text.strip().replace("``", "`")


def _cell(text: str) -> str:
    pieces = re.sub(r"\s+", " ", text).replace("|", "\\|").strip().split("`")
    return "`".join(piece if number % 2 else piece.replace("<", "&lt;") for number, piece in enumerate(pieces))


def _json_type(annotation: str) -> str:
    base = annotation.removesuffix(" | None")
    kind = base.partition("[")[0]
    name = {"str": "string", "int": "number", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}[
        kind
    ]
    return name + (" or null" if base != annotation else "")


def services() -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """The subcommands of `icecdc services`, with their options, as the code adds them to the parser."""
    calls = [
        node
        for node in ast.walk(ast.parse((PACKAGE / "local" / "__main__.py").read_text(encoding="utf-8")))
        if isinstance(node, (ast.Assign, ast.Expr)) and isinstance(node.value, ast.Call)
    ]
    options: dict[str, list[tuple[str, str]]] = defaultdict(list)
    commands = {}
    for node in calls:
        call = node.value
        if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
            continue
        text = next((ast.literal_eval(each.value) for each in call.keywords if each.arg == "help"), "")
        if call.func.attr == "add_parser":
            name = ast.literal_eval(call.args[0])
            commands[name] = (text, node.targets[0].id if isinstance(node, ast.Assign) else name)
        elif call.func.attr == "add_argument":
            options[call.func.value.id].append((ast.literal_eval(call.args[0]), text))
    for name, (text, variable) in sorted(commands.items()):
        yield name, text, options[variable]


class _Text:
    """Reads the texts of a module: literals, f-strings and the constants that it uses."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self._constants = {
            target.id: node.value
            for node in self.tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        functions = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]
        self._functions = {node: function for function in functions for node in ast.walk(function)}

    def remedy(self, call: ast.Call) -> str:
        """The remedy of an error; all that a local variable may have, "" without one."""
        node = next((each.value for each in call.keywords if each.arg == "remedy"), None)
        if isinstance(node, ast.Name):
            named = [self.of(each) for each in self._assigned(call, node.id)]
            return "; or: ".join(filter(_says, named)).replace("……", "…") or self.of(node)
        return self.of(node) if node else ""

    def _assigned(self, node: ast.expr, name: str) -> list[ast.expr]:
        """All that the function around a node assigns to a local variable."""
        function = self._functions.get(node)
        assigned = [each for each in ast.walk(function) if isinstance(each, ast.Assign)] if function else []
        return [each.value for each in assigned if isinstance(each.targets[0], ast.Name) and each.targets[0].id == name]

    def _value(self, name: ast.Name) -> str:
        """The text of a name: of the constant, or of the only value that its function gives it."""
        named = self._assigned(name, name.id)
        return self.of(named[0] if len(named) == 1 and isinstance(named[0], (ast.Constant, ast.JoinedStr)) else name)

    def of(self, node: ast.expr | None) -> str:
        """The text of an expression; what depends on the case is `…`."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join(self.of(each) for each in node.values)
        if isinstance(node, ast.FormattedValue):
            return self._value(node.value) if isinstance(node.value, ast.Name) else "…"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.of(node.left) + self.of(node.right)
        if isinstance(node, ast.Name) and isinstance(self._constants.get(node.id), (ast.Constant, ast.JoinedStr)):
            return self.of(self._constants[node.id])
        if isinstance(node, ast.IfExp):
            both = [self.of(node.body), self.of(node.orelse)]
            return "; or: ".join(both) if all(map(_says, both)) else "…"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "shorten":
            return self.of(node.args[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            return re.sub(r"\{\w*\}", "…", self.of(node.func.value))
        return "…"


def _said() -> dict[str, list[tuple[str, str]]]:
    """What the code says where it makes an error, and the remedy, by the name of the class."""
    names = {kind.__name__ for kind in ERRORS}
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        text = _Text(path)
        for node in ast.walk(text.tree):
            if isinstance(node, ast.Call) and node.args:
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                message = text.of(node.args[0]).partition("\n")[0]
                remedy = text.remedy(node)
                # The composed messages of ConfigError have nothing in common.
                is_composed = not _says(message)
                if name in names and remedy and not (is_composed and (name == "ConfigError" or not _says(remedy))):
                    shown = remedy.lstrip("…") if _says(remedy) else "follow the remedy in the message"
                    found[name].append((message, shown))
    return {
        name: [(_named(message, pairs), text) for message, text in sorted(pairs)] for name, pairs in found.items()
    } | {name: [] for name in names - set(found)}


def _named(message: str, pairs: list[tuple[str, str]]) -> str:
    """A message, or what to call one that the code composes elsewhere."""
    return message if message != "…" else "(every other message)" if len(pairs) > 1 else "(every message)"


def _says(text: str) -> bool:
    """Whether a text says something of its own."""
    return len(re.findall(r"[a-z]{2,}", text)) >= 2
