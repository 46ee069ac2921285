"""The notebooks' two ends: parameters in, from papermill, Jupyter or Databricks widgets; the report out."""

from __future__ import annotations

import ast
import difflib
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from pyspark.sql import SparkSession

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError, IndexDiffersError
from icecdc_core.parameter_model import ParameterModel
from icecdc_core.report import Report, ValidationReport, report_json, write_report
from icecdc_core.session import get_spark, running_session

C = TypeVar("C", bound=ParameterModel)

_STDERR = 2
_PLAIN_TYPES = (str, int, float, bool, list, dict, tuple, type(None))


@overload
def read_parameters(namespace: Mapping[str, Any]) -> SyncConfig: ...


@overload
def read_parameters(namespace: Mapping[str, Any], kind: type[C]) -> C: ...


def read_parameters(namespace: Mapping[str, Any], kind: type[ParameterModel] = SyncConfig) -> ParameterModel:
    """Build the configuration from the notebook's parameters cell.

    Under Jupyter and papermill the values of the cell are taken as they are (papermill puts a cell with the
    given values after it). Where `dbutils` exists every parameter of the cell becomes a text widget with the
    cell's value as its default, and is read back from there. An empty text means "not given".

    Args:
        namespace: The notebook's `globals()`.
        kind: The configuration to build.

    Raises:
        ConfigError: A parameter is wrong, missing or unknown; all problems are told together.
    """
    known = [parameter.name for parameter in kind.parameters()]
    given = {name: namespace[name] for name in known if _is_plain(namespace.get(name))}
    names = _assigned_names(namespace)
    dbutils = namespace.get("dbutils")
    if dbutils is not None:
        passed = _passed_widgets(dbutils)
        widgets = {name: _through_widget(dbutils, name, value) for name, value in given.items()}
        given = {name: passed[name] for name in known if name in passed} | widgets
        names += list(passed)
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    problems = [_unknown_problem(name, known) for name in unknown]
    if dbutils is not None and "opensearch_url" in known and not given.get("opensearch_url"):
        problems.append(
            "opensearch_url: missing. Remedy: set it to http(s)://host:port of an OpenSearch that every node "
            "of the cluster can reach; an embedded one is only for a single machine."
        )
    try:
        config = kind(**given)
    except ConfigError as error:
        problems += error.problems
    if problems:
        verb = "parameter is" if len(problems) == 1 else "parameters are"
        raise ConfigError(f"{len(problems)} {verb} wrong", problems=problems)
    return config


def open_services(config: SyncConfig) -> SyncConfig:
    """Make sure there is an OpenSearch to talk to.

    With `opensearch_url` given nothing happens. Otherwise the server at the default address is used, or else an
    embedded one, which is left running for the next notebook.

    Returns:
        The configuration with the server's address.
    """
    if "opensearch_url" in config.model_fields_set:
        return config
    from icecdc_core.local import start_opensearch
    from icecdc_core.local.server import cluster_at

    if cluster_at(config.opensearch_url):
        return config
    url = start_opensearch().url
    print(f"Embedded OpenSearch at {url}; `python -m icecdc_core.local down` stops it.")  # noqa: T201
    return config.replace(opensearch_url=url)


def open_spark(config: ParameterModel) -> SparkSession:
    """The session of `get_spark`; what the JVM of a new one has to say goes to a file, not into the notebook."""
    if running_session() is not None:
        return get_spark(config)
    log = Path(tempfile.gettempdir()) / f"icecdc-spark-{os.getpid()}.log"
    stderr = os.dup(_STDERR)
    try:
        # The JVM inherits the file descriptor, whatever Python's sys.stderr is.
        with log.open("wb") as file:
            os.dup2(file.fileno(), _STDERR)
        spark = get_spark(config)
    except Exception:
        sys.stderr.write(log.read_text(encoding="utf-8", errors="replace")[-4000:])
        raise
    finally:
        os.dup2(stderr, _STDERR)
        os.close(stderr)
    print(f"Spark {spark.version}; its log is {log}")  # noqa: T201
    return spark


def finish(
    report: Report | Mapping[str, Any],
    config: ParameterModel,
    namespace: Mapping[str, Any],
) -> None:
    """End the notebook: the report as one JSON object, printed, written to `report_path`, handed to the job.

    Args:
        report: What to report.
        config: Says where the report goes.
        namespace: The notebook's `globals()`.

    Raises:
        IndexDiffersError: A validation found a difference and `fail_on_difference` is set.
    """
    text = report_json(report)
    if config.report_path:
        write_report(report, config.report_path)
    print(text, flush=True)  # noqa: T201
    fails = isinstance(config, SyncConfig) and config.fail_on_difference
    if isinstance(report, ValidationReport) and fails and not report.ok:
        raise IndexDiffersError(
            f"The index '{report.index}' differs from '{report.table}': {report.missing} missing, "
            f"{report.extra} extra, {report.stale} stale documents",
            subject="fail_on_difference",
            value=True,
            remedy="run the validation with repair=true; find out who else writes into the index",
        )
    dbutils = namespace.get("dbutils")
    if dbutils is not None:
        # Raises on purpose: it is how a notebook hands its result to the job, and nothing may come after it.
        dbutils.notebook.exit(text)


def widget_text(value: object) -> str:
    """A parameter's value as the text of a widget, such that `SyncConfig` reads the same value from it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value) if value else ""
    return str(value)


def _through_widget(dbutils: Any, name: str, value: object) -> str:
    # A widget that is already there keeps its value: what a job passes or a person typed wins over the cell.
    dbutils.widgets.text(name, widget_text(value), name)
    return str(dbutils.widgets.get(name))


def _passed_widgets(dbutils: Any) -> dict[str, str]:
    """What the job or an earlier run set; nothing on runtimes that cannot list widgets."""
    list_all = getattr(dbutils.widgets, "getAll", None)
    return dict(list_all()) if list_all is not None else {}


def _assigned_names(namespace: Mapping[str, Any]) -> list[str]:
    """Names the parameters cells set: cells of nothing but plain assignments, run just before this one.

    papermill only warns about a parameter that does not exist; in a job a warning is read by nobody.
    """
    history = namespace.get("In")
    if not isinstance(history, Sequence):
        return []
    names: list[str] = []
    for source in reversed(history[:-1]):
        assigned = _plain_assignments(source)
        if assigned is None:
            break
        names = assigned + names
    return names


def _plain_assignments(source: str) -> list[str] | None:
    """The names a cell assigns, None when it does anything else."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return None
    names: list[str] = []
    for statement in statements:
        targets: list[ast.expr]
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            return None
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


def _unknown_problem(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}" if near else "see parameters() of the configuration for all of them"
    return f"{name}: unknown parameter. Remedy: {hint}."


def _is_plain(value: object) -> bool:
    return value is not None and isinstance(value, _PLAIN_TYPES)
