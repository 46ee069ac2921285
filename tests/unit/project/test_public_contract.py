"""The public contract is what `public_contract.txt` lists: who changes it edits the list, and the changelog."""

import inspect
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import get_args

from icecdc_core import errors
from icecdc_core.__main__ import main
from icecdc_core.cli import COMMANDS
from icecdc_core.commits import position
from icecdc_core.config.model import ParameterModel
from icecdc_core.config.sync import InitConfig, StatusConfig, SyncConfig, WaitConfig
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig, IngestReport, commit_log
from icecdc_core.ingest.status import IngestStatus
from icecdc_core.jobs.init import InitReport
from icecdc_core.jobs.plan import PlanReport
from icecdc_core.jobs.setup import SetupReport
from icecdc_core.reporting.exit_states import EXIT_STATES, failure_report, state_of
from icecdc_core.reporting.metrics import METRICS
from icecdc_core.reporting.reports import ManyReport, RunReport, ValidationReport
from icecdc_core.runs import dead_letters
from icecdc_core.runs.cluster_status import IndexStatus, StatusReport

ROOT = Path(__file__).parents[3]
LIST = Path(__file__).with_name("public_contract.txt")
PACKAGES = ("", ".changes", ".config", ".documents", ".ingest", ".local")
CONFIGS = (ParameterModel, SyncConfig, InitConfig, StatusConfig, WaitConfig, ExploreConfig, IngestConfig)
REPORTS = (
    *(RunReport, ValidationReport, PlanReport, SetupReport, InitReport, StatusReport, IndexStatus),
    *(IngestReport, IngestStatus, ManyReport),
)


def names() -> Iterator[str]:
    """What packages export, and what pages and notebooks import; without types, which releases of Spark rename."""
    found = {(f"icecdc_core{each}", name) for each in PACKAGES for name in import_module(f"icecdc_core{each}").__all__}
    found |= {("icecdc_core.local.kafka", "running_kafka")}
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.ipynb")):
        for module, imported in re.findall(r"from (icecdc_core[\w.]*) import ([\w, ]+)", page.read_text("utf-8")):
            found |= {(module, name) for name in imported.split(", ")}
    for module, name in sorted(found):
        named, shown = getattr(import_module(module), name), ""
        if inspect.isfunction(named):
            whole = inspect.signature(named)
            untyped = [each.replace(annotation=Parameter.empty) for each in whole.parameters.values()]
            shown = str(whole.replace(parameters=untyped, return_annotation=Parameter.empty))
            shown = re.sub(r"=<[^>]+>", "=...", shown)  # a function or a class
        yield f"{module}.{name}{shown}"


def parameters() -> Iterator[str]:
    for kind in CONFIGS:
        for name in sorted(kind.model_fields.keys() - getattr(kind.__mro__[1], "model_fields", {}).keys()):
            field = kind.model_fields[name]
            value = "required" if field.is_required() else repr(field.get_default(call_default_factory=True))
            choices = [each for each in get_args(field.annotation) if isinstance(each, str)]
            yield f"parameter {kind.__name__}.{name}: {value}{f' of {choices}' if choices else ''}"


def commands(capsys) -> Iterator[str]:
    """Every command, with its options that are no parameters."""
    for name in [*COMMANDS, "services up", "services down", "services status"]:
        kind = COMMANDS[name].kind if name in COMMANDS else None
        with suppress(SystemExit):
            main([*name.split(), "--help-all" if kind else "--help"], "icecdc")
        options = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
        options -= {f"--{each.replace('_', '-')}" for each in (kind.model_fields if kind else ())}
        yield f"command {name}: {' '.join(sorted(options))}{f' and {kind.__name__}' if kind else ''}"


def results() -> Iterator[str]:
    """How runs end, what they report, and what they store."""
    yield from (f"exit code {state.code}: {name}" for name, state in EXIT_STATES.items())
    for name, kind in sorted(vars(errors).items()):
        if inspect.isclass(kind) and issubclass(kind, errors.IcecdcError):
            yield f"error {name}({kind.__mro__[1].__name__}): {state_of(kind('made for the list'))}"
    for kind in REPORTS:
        yield f"report {kind.__name__}: {' '.join(each.name for each in fields(kind) if each.repr)}"
    yield f"report of a failed run: {' '.join(failure_report(ValueError(), {}))}"
    yield f"metrics: {' '.join(METRICS)}"
    yield f"position format: {position.FORMAT}"
    for kind in (position.Position, position.Batch, position.NestedPosition, position.LeaseHolder):
        yield f"stored {kind.__name__}: {' '.join(each.name for each in fields(kind))}"
    yield f"table of dead letters: {dead_letters.SCHEMA}"
    yield f"table of ingest commits: {commit_log.SCHEMA}"


def it_is_what_the_list_says(capsys):
    expected = [*names(), *parameters(), *commands(capsys), *results()]
    if os.environ.get("ICECDC_UPDATE_DOCS"):
        LIST.write_text("\n".join(expected) + "\n", encoding="utf-8")
    assert LIST.read_text(encoding="utf-8").splitlines() == expected
