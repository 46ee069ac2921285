"""What notebooks call first and last.

In: parameters of papermill, Jupyter or Databricks widgets. Out: a session, and a report as tables, figures and JSON.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import PydanticCustomError

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel, is_given, problems_error
from icecdc_core.config.values import parse_json_object
from icecdc_core.errors import ConfigError, IcecdcError, IndexDiffersError, IngestWriteError
from icecdc_core.ingest import IngestConfig, IngestReport
from icecdc_core.jobs.setup import SetupReport
from icecdc_core.reporting.exit_states import failure_report
from icecdc_core.reporting.instrumentation import leave_report
from icecdc_core.reporting.reports import Report, ValidationReport, report_json, write_report
from icecdc_core.session.spark import get_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import TypeVar

    C = TypeVar("C", bound=ParameterModel, default=SyncConfig)

# Parameters of notebooks alone; with `list_only` the first task of a Databricks job only lists indexes.
INDEX_FILE, INGEST_FILE, OPTIONS, LIST_ONLY = "index_file", "ingest_file", "options", "list_only"
_PLAIN_TYPES = (str, int, float, bool, list, dict, tuple)


def read_parameters(namespace: Mapping[str, Any], kind: type[C] = SyncConfig) -> C:  # type: ignore[assignment]
    """Build the configuration from the parameters of a notebook.

    A global with the name of a parameter is its value, also if no cell lists it. On Databricks, where `dbutils` exists,
    each of these globals becomes a text widget, and the value of a widget or job parameter wins. `options` has further
    parameters; one that is also given by name has that value. An empty string means "not given".

    With `index_file`, the parameters are those of the index named `index` in this file (which may be empty if the file
    has only one); with `ingest_file` those of the ingest named `job`. What is given beside it wins over the file.

    Args:
        namespace: The notebook's `globals()`.
        kind: The configuration to build.

    Raises:
        ConfigError: A parameter is wrong, missing or misspelt; all problems are reported together.
    """
    given, problems = _given(namespace, kind)
    on_databricks = namespace.get("dbutils") is not None
    in_cells = [name for name in given if on_databricks and name in namespace]
    if used := [name for name in in_cells if given[name] != widget_text(namespace[name])]:
        print(f"The values of widgets are used: {', '.join(used)}")  # noqa: T201
    given.pop(LIST_ONLY, None)
    file, entry = (INGEST_FILE, "job") if issubclass(kind, IngestConfig) else (INDEX_FILE, "index")
    path = str(given.pop(file, "")).strip()
    config: C | None = None
    try:
        if path and issubclass(kind, SyncConfig | IngestConfig):
            config = kind.load(path, str(given.pop(entry, "")).strip(), **given)
        else:
            config = kind(**given)
    except ConfigError as error:
        problems += error.problems
    if config and on_databricks and isinstance(config, SyncConfig) and "opensearch_url" not in config.model_fields_set:
        problems.append(
            "opensearch_url: missing. Remedy: set it to http(s)://host:port of an OpenSearch that every node "
            "of the cluster can reach; an embedded one is only for a single machine."
        )
    if config is None or problems:
        raise problems_error(problems)
    return config


def list_indexes(namespace: Mapping[str, Any]) -> None:
    """With `list_only`, give a Databricks job the names in `index_file` as task value `indexes`, and exit."""
    given, problems = _given(namespace, SyncConfig)
    dbutils, list_only = namespace.get("dbutils"), str(given.pop(LIST_ONLY, "")).lower() == "true"
    if dbutils is None or not list_only:
        return
    path, index = str(given.pop(INDEX_FILE, "")).strip(), given.pop("index", "")
    if not path or index:
        problems.append(
            "list_only: needs index_file and no index. Remedy: for one index run its notebook, not the job."
        )
    if problems:
        raise problems_error(problems)
    configs = SyncConfig.load_all(path, **given)
    if endless := [name for name, config in configs.items() if config.polls and not config.max_polls]:
        raise ConfigError(
            f"The sync of {', '.join(endless)} polls without a limit, so its task would never end",
            subject="max_polls",
            value=0,
            remedy="leave max_polls out of the file; elsewhere give it on the command line: icecdc sync --max-polls 0",
        )
    dbutils.jobs.taskValues.set(key="indexes", value=[*configs])
    dbutils.notebook.exit(json.dumps([*configs]))


def widget_text(value: object) -> str:
    """Convert a parameter's value to the string of a widget, from which `SyncConfig` reads the same value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=str) if value else ""
    return "" if value is None else str(value)


def _given(namespace: Mapping[str, Any], kind: type[ParameterModel]) -> tuple[dict[str, Any], list[str]]:
    files = [INDEX_FILE, LIST_ONLY] if issubclass(kind, SyncConfig) else []
    files += [INGEST_FILE] if issubclass(kind, IngestConfig) else []
    known = [*kind.model_fields, OPTIONS, *files]
    plain = {name: each for name, each in namespace.items() if not callable(each) and not isinstance(each, ModuleType)}
    values = {name: plain[name] for name in known if name in plain}
    names = {name for name, value in namespace.items() if isinstance(value, _PLAIN_TYPES) and name[:1] != "_"}
    problems = []
    if (dbutils := namespace.get("dbutils")) is not None:
        for name in known:
            if name in values:
                # An existing widget keeps its value: what a job passes or a person typed wins over the cell.
                dbutils.widgets.text(name, widget_text(values[name]), name)
            with suppress(Exception):  # there is none of that name, and not every runtime can list them
                values[name] = str(dbutils.widgets.get(name))
        names |= {*(getattr(dbutils.widgets, "getAll", None) or dict)()}
    given = {name: values[name] for name in known if is_given(values.get(name))}
    try:
        options = cast("dict[str, Any]", parse_json_object(given.pop(OPTIONS, {})))
        given = {**{name: value for name, value in options.items() if is_given(value)}, **given}
    except PydanticCustomError as error:
        problems.append(f'{OPTIONS}: {error.message()}. Remedy: write a JSON object, such as {{"max_polls": 3}}.')
    for name in sorted(names - {*known}):
        spelled = name.lower().replace("-", "_")
        # Jobs pass names of their own to all notebooks, such as `warehouse_id`, so a slip must be very similar.
        near = [each for each in known if sorted(each) == sorted(spelled)]
        near += difflib.get_close_matches(spelled, known, 1, 0.86)
        problems += [f"{name}: unknown parameter. Remedy: did you mean {each}." for each in near[:1]]
    return given, problems


def open_services(config: SyncConfig) -> SyncConfig:
    """Use the server that is given, the embedded one, or one at the default port; else start one, which stays."""
    if "opensearch_url" in config.model_fields_set:
        return config
    from icecdc_core.local import start_opensearch
    from icecdc_core.local.opensearch import background, cluster_at

    server = background.status()
    if server is None or not cluster_at(server.url):
        if cluster_at(config.opensearch_url):
            print(f"The OpenSearch that runs at {config.opensearch_url} is used.")  # noqa: T201
            return config
        server = start_opensearch()
    print(f"Embedded OpenSearch at {server.url}; `icecdc services down` stops it.")  # noqa: T201
    return config.replace(opensearch_url=server.url)


def open_spark(config: ParameterModel) -> SparkSession:
    """Return the session of `get_spark`, and say where the output of a new JVM goes."""
    try:
        spark = get_spark(config)
    except IcecdcError as error:  # an older report must not stay
        leave_report(failure_report(error, {**config.subject, "stage": "session"}), config)
        raise
    if log := spark.conf.get("spark.icecdc.log", None):
        print(f"Spark {spark.version}; its log is {log}")  # noqa: T201
    return spark


def finish(report: Report | Mapping[str, Any], config: ParameterModel, namespace: Mapping[str, Any]) -> None:
    """End the notebook: print the report as one JSON object, write it to `report_path`, return it to the job."""
    text = report_json(report)
    if config.report_path:
        write_report(report, config.report_path)
    print(text, flush=True)  # noqa: T201
    if isinstance(report, SetupReport) and report.errors:
        raise report.errors[0]
    if isinstance(report, IngestReport) and report.behind:
        reasons = [f"{name} ({report.tables.get(name, {}).get('error')})" for name in report.behind]
        raise IngestWriteError(
            f"Some tables could not be written: {'; '.join(reasons)}",
            remedy="remove the causes; the next run reads the records again",
        )
    fails = getattr(config, "fail_on_difference", False)
    if isinstance(report, ValidationReport) and fails and not report.ok:
        raise IndexDiffersError(
            f"The index '{report.index}' differs from '{report.table}': {report.missing} missing, "
            f"{report.extra} extra, {report.stale} stale documents",
            subject="fail_on_difference",
            value=True,
            remedy="run the sync, which brings what was committed since; then validate again"
            if report.is_behind
            else "replay its dead letters or validate with repair=true; find out who else writes the index",
        )
    if (dbutils := namespace.get("dbutils")) is not None:
        # This ends the notebook by an exception and returns the result to the job, so it must be the last statement.
        dbutils.notebook.exit(text)
