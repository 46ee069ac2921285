"""The reference pages of the documentation site, made from the code when the site is built."""

from __future__ import annotations

import inspect
import io
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import fields

from icecdc_core import errors
from icecdc_core.__main__ import main
from icecdc_core.cli import COMMANDS, SERVICES
from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import IcecdcError
from icecdc_core.ingest import IngestConfig, IngestReport
from icecdc_core.jobs.init import InitReport
from icecdc_core.jobs.plan import PlanReport
from icecdc_core.jobs.setup import SetupReport
from icecdc_core.reporting.exit_states import EXIT_STATES, state_of
from icecdc_core.reporting.instrumentation import failure_report
from icecdc_core.reporting.metrics import METRICS, RunMetrics
from icecdc_core.reporting.reports import ManyReport, RunReport, ValidationReport
from icecdc_core.runs.cluster_status import IndexStatus, StatusReport

REPORTS = {
    RunReport: "From `export`, `sync` and `replay`.",
    ValidationReport: "From `validate` and `repair`.",
    PlanReport: "From `plan`.",
    SetupReport: "From `setup`.",
    InitReport: "From `init`.",
    StatusReport: "From `status`.",
    IndexStatus: "An entry of `indexes` in a status report.",
    IngestReport: "From `ingest`.",
    ManyReport: "From every command with `--file`.",
}
FAILURE = {
    "job": "The command; null if there was none.",
    "table": "`catalog.namespace.table`; null if no table is known.",
    "index": "The alias that readers use; null if no index is known.",
    "run_id": "Identifies the run in logs.",
    "seconds": "Seconds the run took.",
    "stage": "The stage in which it failed.",
    "state": "How the run ended.",
    "exit_code": "The exit code of the state.",
    "error": "The class of the [error](errors.md).",
    "message": "What is wrong, with the value found.",
    "remedy": "What to do.",
    "ended_at": "When it ended, as ISO text in UTC.",
    "behind_since": "Time of the oldest commit that the index lacks; empty if that is not known, or if it lacks none.",
}


def errors_page() -> str:
    """Every class of errors: what it means, and the state in which a run ends with it."""
    lines = ["# Errors", ""]
    lines += ["All errors are in `icecdc_core.errors` and derive from `IcecdcError`. Each says what is wrong, then the"]
    lines += ["parameter, table or index with the value found, then the remedy."]
    for kind in vars(errors).values():
        if not inspect.isclass(kind) or not issubclass(kind, IcecdcError) or kind is IcecdcError:
            continue
        state = state_of(kind("made for the documentation"))
        base = kind.__mro__[1]
        also = f" It is a [{base.__name__}](#{base.__name__.lower()})." if base is not IcecdcError else ""
        lines += ["", f"## {kind.__name__}", "", _plain(inspect.cleandoc(kind.__doc__ or "").partition("\n\nArgs:")[0])]
        lines += ["", f"State `{state}`, exit code {EXIT_STATES[state].code}: {EXIT_STATES[state].action}.{also}"]
    return _text(lines)


def metrics_page() -> str:
    """Every metric and its labels."""
    facts = {"job": "sync", "table": "t", "index": "i", "state": "ok", "lag_snapshots": 1, "lag_seconds": 1.0}
    facts |= {"stage_seconds": {"write": 1.0}}
    facts |= dict.fromkeys(("upserts", "deletes", "already_applied", "rejected", "missing", "extra", "stale"), 1)
    labels: dict[str, set[str]] = defaultdict(set)
    for family in RunMetrics(facts, 1.0).collect():
        for sample in family.samples:
            for name in set(sample.labels) - {"icecdc_job", "job", "table", "index"}:
                labels[family.name].add(f'{name}="{"..." if name == "stage" else sample.labels[name]}"')
    rows = [(f"`{name}`", text, _codes(labels[name])) for name, (_, text) in METRICS.items()]
    lines = ["# Metrics", ""]
    lines += ["All metrics are gauges of the last run, with the labels `table`, `index`, `job` and `icecdc_job`.", ""]
    return _text([*lines, *_table(("Metric", "What it says", "More labels"), rows)])


def reports_page() -> str:
    """The fields of every JSON report."""
    lines = ["# Reports", "", "Every run ends with a report: an object in Python, one JSON object with `--json`, in"]
    lines += ["`report_path` and in a notebook. Each also has `state`."]
    for kind, origin in REPORTS.items():
        lines += ["", f"## {kind.__name__}", "", f"{_plain((kind.__doc__ or '').splitlines()[0])} {origin}", ""]
        lines += _table(("Field", "Type", "Meaning"), _report_fields(kind))
    lines += ["", "## A failed run", "", "The report of a run that failed, whatever the command.", ""]
    failed = [(f"`{name}`", FAILURE[name]) for name in failure_report(ValueError(), {})]
    return _text([*lines, *_table(("Field", "Meaning"), failed)])


def parameters_page() -> str:
    """Every parameter of the jobs and of an ingest."""
    lines = ["# Parameters", "", "All values may be strings; an empty string means the default."]
    for kind, title in ((SyncConfig, "Jobs"), (IngestConfig, "Kafka ingest")):
        rows = []
        for name, field in sorted(kind.model_fields.items(), key=lambda each: each[0] in ParameterModel.model_fields):
            value = field.get_default(call_default_factory=True)
            default = "required" if field.is_required() else "" if value in ("", {}, []) else f"`{value}`"
            rows.append((f"`{name}`", default, field.description))
        lines += ["", f"## {title}", "", f"`{kind.__name__}`", "", *_table(("Parameter", "Default", "Meaning"), rows)]
    return _text(lines)


def commands_page() -> str:
    """What `--help` says of every command."""
    lines = ["# Commands", "", "Every parameter is an option: `identifier_columns` is `--identifier-columns`."]
    for name in [*COMMANDS, SERVICES]:
        lines += ["", f"## {name}", "", "```text", help_of(name), "```"]
    return _text(lines)


def help_of(*words: str) -> str:
    """What `icecdc ... --help` prints."""
    os.environ["COLUMNS"] = "110"
    with redirect_stdout(io.StringIO()) as shown, suppress(SystemExit):
        main([*words, "--help"], "icecdc")
    return shown.getvalue().rstrip()


PAGES = {
    "parameters.md": parameters_page,
    "commands.md": commands_page,
    "reports.md": reports_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
}
"""The page that each function makes."""


def _report_fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a report as its JSON has them: name, type, meaning."""
    texts = field_meanings(kind)
    if kind is StatusReport:
        texts["indexes"] = "The [status](#indexstatus) of each index."
    for each in fields(kind):
        if each.repr:
            yield (
                f"`{each.name}`",
                _json_type(each.type if isinstance(each.type, str) else inspect.formatannotation(each.type)),
                texts[each.name],
            )
    if kind is IngestReport:
        yield "`tables_behind`", "number", "How many tables could not be written."


def field_meanings(kind: type) -> dict[str, str]:
    """What each field of a report means, by its docstring."""
    _, _, section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): ((?:.*(?:\n {8}.*)*))", section.partition("\n\n")[0], re.MULTILINE)
    inherited = field_meanings(kind.__base__) if kind.__base__ in REPORTS else {"ended_at": "When it ended."}
    return {**inherited, **{name: re.sub(r"\s+", " ", text.replace("``", "")) for name, text in found}}


def _json_type(annotation: str) -> str:
    base = annotation.removesuffix(" | None")
    names = {"str": "string", "int": "number", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
    return names[base.partition("[")[0]] + (" or null" if base != annotation else "")


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [" | ".join(heads), "|".join(["---"] * len(heads)), *(" | ".join(map(_cell, row)) for row in rows)]
    return [f"| {line} |" for line in lines]


def _cell(text: str) -> str:
    pieces = re.sub(r"\s+", " ", text).replace("|", "\\|").strip().split("`")
    return "`".join(piece if number % 2 else piece.replace("<", "&lt;") for number, piece in enumerate(pieces))


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in sorted(texts))


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("``", "`")


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
