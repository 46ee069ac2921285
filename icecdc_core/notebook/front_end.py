"""The first and the last cell of a notebook: read the parameters, open services and session, return the report."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from pyspark.sql import SparkSession

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import ConfigError, IndexDiffersError
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.notebook.parameters_cell import ParametersCell, likely_meant
from icecdc_core.reporting.reports import Report, ValidationReport, report_json, write_report
from icecdc_core.secrets import redacted
from icecdc_core.session import get_spark
from icecdc_core.session.spark import running_session

C = TypeVar("C", bound=ParameterModel)

_STDERR = 2
_PLAIN_TYPES = (str, int, float, bool, list, dict, tuple, type(None))


@overload
def read_parameters(namespace: Mapping[str, Any]) -> SyncConfig: ...


@overload
def read_parameters(namespace: Mapping[str, Any], kind: type[C]) -> C: ...


def read_parameters(namespace: Mapping[str, Any], kind: type[ParameterModel] = SyncConfig) -> ParameterModel:
    """Build the configuration from the notebook's parameters cell.

    Under Jupyter and papermill the values of the cell are used (papermill adds a cell with the given values after it).
    On Databricks, where `dbutils` exists, every parameter of the cell becomes a text widget with the cell's value as
    its default, and the widget's value is used. An existing widget keeps its value, so a value that differs from the
    cell's is printed, as is a widget that the cell does not set. An empty string means "not given".
    Names that are no parameters are ignored with a warning, unless they look like a misspelt parameter.

    Args:
        namespace: The notebook's `globals()`.
        kind: The configuration to build.

    Raises:
        ConfigError: A parameter is wrong, missing or misspelt; all problems are reported together.
    """
    parameters = kind.parameters()
    known = [parameter.name for parameter in parameters]
    mappings = {parameter.name for parameter in parameters if parameter.type.startswith("dict")}
    required = [name for name, field in kind.model_fields.items() if field.is_required()]
    cell = ParametersCell(namespace, known, required)
    given = {name: namespace[name] for name in known if cell.sets(name) and _is_plain(namespace.get(name))}
    names = cell.names
    dbutils = namespace.get("dbutils")
    if dbutils is not None:
        passed = _passed_widgets(dbutils)
        widgets = {name: _through_widget(dbutils, name, value, name in mappings) for name, value in given.items()}
        others = {name: passed[name] for name in known if passed.get(name) and name not in widgets}
        for name, value in others.items():
            shown = _shown(name, value, name in mappings)
            print(f"{name}: the widget's value {shown} is used; the cell does not set it")  # noqa: T201
        given = {**others, **widgets}
        names += list(passed)
    problems = _unknown_problems([name for name in dict.fromkeys(names) if name not in known], known)
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
    """Start an embedded OpenSearch if no server is given or running.

    A given `opensearch_url` is used as it is. Otherwise the server at the default URL is used; without one, an embedded
    server starts and stays running for the next notebook.

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
    """Return the session of `get_spark`; the output of a new JVM goes to a file instead of the notebook."""
    if running_session() is not None:
        return get_spark(config)
    # The log names tables and paths, so it has a private folder: in a shared one somebody could prepare a link.
    log = Path(tempfile.mkdtemp(prefix="icecdc-spark-")) / "spark.log"
    stderr = os.dup(_STDERR)
    try:
        # The JVM inherits the file descriptor, whatever Python's sys.stderr is.
        with open(log, "xb", opener=_private) as file:
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


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def finish(
    report: Report | Mapping[str, Any],
    config: ParameterModel,
    namespace: Mapping[str, Any],
) -> None:
    """End the notebook: print the report as one JSON object, write it to `report_path`, return it to the job.

    Args:
        report: The report.
        config: The parameters; `report_path` and `fail_on_difference` are used here.
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
        # This ends the notebook by an exception and returns the result to the job, so it must be the last statement.
        dbutils.notebook.exit(text)


def widget_text(value: object) -> str:
    """Convert a parameter's value to the string of a widget, from which `SyncConfig` reads the same value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value) if value else ""
    return str(value)


def _through_widget(dbutils: Any, name: str, value: object, is_mapping: bool) -> str:
    # An existing widget keeps its value: what a job passes or a person typed wins over the cell.
    in_cell = widget_text(value)
    dbutils.widgets.text(name, in_cell, name)
    used = str(dbutils.widgets.get(name))
    if (used.lower() if isinstance(value, bool) else used) != in_cell:
        shown, replaced = _shown(name, used, is_mapping), _shown(name, in_cell, is_mapping)
        print(f"{name}: the widget's value {shown} is used, not the cell's {replaced}")  # noqa: T201
    return used


def _shown(name: str, text: str, is_mapping: bool) -> str:
    """A value as a notebook may show it: a mapping may hold secrets, whatever its text looks like."""
    return "{...}" if is_mapping and text else repr(redacted(name, text))[:200]


def _passed_widgets(dbutils: Any) -> dict[str, str]:
    """The widgets that the job or an earlier run set; empty on runtimes that cannot list widgets."""
    list_all = getattr(dbutils.widgets, "getAll", None)
    return dict(list_all()) if list_all is not None else {}


def _unknown_problems(unknown: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return a problem for each name that is probably a misspelt parameter; other names are ignored with a warning.

    papermill only warns about unknown parameters, and nobody reads a warning in a job. But a job passes its parameters
    to every notebook, also those that other notebooks or the user need.
    """
    others = {parameter.name for kind in (SyncConfig, IngestConfig) for parameter in kind.parameters()}
    meant = {name: likely_meant(name, known) for name in unknown if name not in others}
    ignored = [name for name in unknown if not meant.get(name)]
    if ignored:
        warnings.warn(f"Ignored, because they are no parameters here: {', '.join(ignored)}", stacklevel=3)
    return [f"{name}: unknown parameter. Remedy: did you mean {near}." for name, near in meant.items() if near]


def _is_plain(value: object) -> bool:
    return value is not None and isinstance(value, _PLAIN_TYPES)
