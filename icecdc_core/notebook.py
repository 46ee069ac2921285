"""What notebooks call first and last.

In: parameters of papermill, Jupyter or Databricks widgets. Out: a session, and a report as tables, figures and JSON.
"""

from __future__ import annotations

import ast
import difflib
import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import icecdc_core.session.compat  # noqa: F401 (it refuses a pyspark that is missing or too old)
from icecdc_core.config import SyncConfig
from icecdc_core.config.index_file import IndexFile
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import ConfigError, IndexDiffersError
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.jobs.smoke import SmokeReport
from icecdc_core.reporting.reports import Report, ValidationReport, report_json, write_report
from icecdc_core.secrets import redact
from icecdc_core.session import get_spark
from icecdc_core.session.java import jvm_output_to_file
from icecdc_core.session.spark import running_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ParametersCell:
    """The cells that set parameters, from IPython's history in `In`.

    A notebook cannot read its cell tags, and Databricks has none. So the parameters cell is the one that sets a
    required parameter; among several, the one that sets most parameters; among equals, the latest. Names that earlier
    cells set are the user's own. Later cells may override parameters.
    """

    def __init__(self, namespace: Mapping[str, Any], known: Collection[str], required: Collection[str]) -> None:
        history = namespace.get("In")
        cells = [_tree(source) for source in history[:-1]] if isinstance(history, Sequence) else []
        assigned = [_assigned(cell) for cell in cells]
        ranks = [(bool(names & {*required}), len(names & {*known}), at) for at, names in enumerate(assigned)]
        _, count, start = max(ranks, default=(False, 0, 0))
        self._own = set().union(*assigned[:start]) - set().union(*assigned[start:]) if count else set()
        self._cells = cells[start:] if count else cells[-1:]

    def sets(self, name: str) -> bool:
        """Whether the value of this name may be a parameter; without a history every name may."""
        return name not in self._own

    @property
    def names(self) -> list[str]:
        """All names that are set by cells of plain assignments only, such as papermill's cell."""
        found = [target for cell in self._cells if _is_plain_value(cell) for target in _targets(cell)]
        return list(dict.fromkeys(found))


def likely_meant(name: str, known: Collection[str]) -> str:
    """Return the parameter that a misspelt name probably means, "" for none.

    Jobs pass their own names to every notebook, such as `warehouse_id`, so only one or two wrong letters count.
    """
    written = name.lower().replace("-", "_")
    for near in difflib.get_close_matches(written, known, n=3):
        blocks = difflib.SequenceMatcher(None, written, near, autojunk=False).get_matching_blocks()
        differing = len(written) + len(near) - 2 * sum(block.size for block in blocks)
        if differing <= (2 if len(written) > 4 else 1):
            return near
    return ""


def _tree(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.Module([], [])


def _assigned(cell: ast.Module) -> set[str]:
    """All names that a cell sets, in any statement."""
    return {node.id for node in ast.walk(cell) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _is_plain_value(cell: ast.Module) -> bool:
    return all(isinstance(statement, (ast.Assign, ast.AnnAssign)) for statement in cell.body)


def _targets(cell: ast.Module) -> list[str]:
    found: list[str] = []
    for statement in cell.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        found += [target.id for target in targets if isinstance(target, ast.Name)]
    return found


C = TypeVar("C", bound=ParameterModel)

INDEX_FILE = "index_file"
"""The parameter of notebooks that names an index file; `index` is then the name of an index in it."""

LIST_ONLY = "list_only"
"""The parameter of `00_setup` with which the first task of a Databricks job ends after `list_indexes`."""

LONGEST_LIST = 10_000
"""The characters that Databricks allows for the inputs of a task that runs for each of them, as a JSON text."""

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

    With `index_file`, the parameters are those of the index named `index` in this file (which may be empty if the file
    has only one). Other parameters win over the file if they differ from their default.

    Args:
        namespace: The notebook's `globals()`.
        kind: The configuration to build.

    Raises:
        ConfigError: A parameter is wrong, missing or misspelt; all problems are reported together.
    """
    given, problems = _given(namespace, kind)
    given.pop(LIST_ONLY, None)
    path = str(given.pop(INDEX_FILE, "") or "").strip()
    config: ParameterModel | None = None
    try:
        if path and issubclass(kind, SyncConfig):
            config = kind.load(path, str(given.pop("index", "") or "").strip(), **_overrides(given, kind))
        else:
            config = kind(**given)
    except ConfigError as error:
        problems += error.problems
    needs_url = namespace.get("dbutils") is not None and "opensearch_url" in kind.model_fields
    # The file may have the URL, and one that is wrong has its own problems.
    has_url = "opensearch_url" in config.model_fields_set if config and path else path or given.get("opensearch_url")
    if needs_url and not has_url:
        problems.append(
            "opensearch_url: missing. Remedy: set it to http(s)://host:port of an OpenSearch that every node "
            "of the cluster can reach; an embedded one is only for a single machine."
        )
    if config is None or problems:
        verb = "parameter is" if len(problems) == 1 else "parameters are"
        raise ConfigError(f"{len(problems)} {verb} wrong", problems=problems)
    return config


def list_indexes(namespace: Mapping[str, Any]) -> None:
    """Give the names of all indexes in `index_file` to a Databricks job, for the tasks that run for each of them.

    They are the task value `indexes`, after their parameters were checked. With `list_only`, or if the file has several
    indexes and `index` names none, the notebook ends here, before any table is read. Without Databricks nothing is
    done, nor without `list_only` if there is no `index_file`, or `index` is given.

    Args:
        namespace: The notebook's `globals()`.

    Raises:
        ConfigError: A parameter of the file or of an index is wrong; all problems are reported together.
    """
    dbutils = namespace.get("dbutils")
    if dbutils is None:
        return
    path, index = (_widget(dbutils, name, namespace.get(name) or "").strip() for name in (INDEX_FILE, "index"))
    list_only = _widget(dbutils, LIST_ONLY, namespace.get(LIST_ONLY) or False).strip().lower()
    if list_only not in ("", "true", "false") or (list_only == "true" and (not path or index)):
        raise ConfigError(
            "It must be true or false, and true needs index_file and no index",
            subject=LIST_ONLY,
            value=list_only,
            remedy="set index_file and leave index empty; for one index run its notebook, not the job",
        )
    if not path or index:
        return
    names = IndexFile(path, SyncConfig).names
    _require_room(names)
    given, problems = _given(namespace, SyncConfig)
    overrides = _overrides({k: v for k, v in given.items() if k not in (INDEX_FILE, LIST_ONLY)}, SyncConfig)
    if problems:
        raise ConfigError(f"{len(problems)} parameters are wrong", problems=problems)
    _require_an_end(SyncConfig.load_all(path, **overrides))
    dbutils.jobs.taskValues.set(key="indexes", value=names)
    if list_only == "true" or len(names) > 1:
        print(f"{path} has the indexes {', '.join(names)}; set index to one of them to go on.")  # noqa: T201
        dbutils.notebook.exit(json.dumps(names))


def _require_room(names: Sequence[str]) -> None:
    """Refuse more indexes than a task of Databricks can run for."""
    length = len(json.dumps(list(names)))
    if length > LONGEST_LIST:
        raise ConfigError(
            f"The file has {len(names):,} indexes, whose names are {length:,} characters as a list; Databricks allows "
            f"{LONGEST_LIST:,}",
            subject=INDEX_FILE,
            value=len(names),
            remedy="split the file, and deploy the bundle once for each part with another index_file",
        )


def _require_an_end(configs: Mapping[str, SyncConfig]) -> None:
    """Refuse indexes whose sync polls without a limit: the tasks after it would never begin."""
    endless = [name for name, config in configs.items() if not config.max_polls and config.polls]
    if endless:
        raise ConfigError(
            f"The sync of {', '.join(endless)} polls without a limit, so its task would never end",
            subject="max_polls",
            value=0,
            remedy="leave max_polls out of the file; icecdc sync --file takes --max-polls 0",
        )


def widget_text(value: object) -> str:
    """Convert a parameter's value to the string of a widget, from which `SyncConfig` reads the same value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value) if value else ""
    return str(value)


def _given(namespace: Mapping[str, Any], kind: type[ParameterModel]) -> tuple[dict[str, Any], list[str]]:
    """The parameters of the cell and the widgets, and the problems with names that are no parameters."""
    parameters = kind.parameters()
    known = [parameter.name for parameter in parameters]
    mappings = {parameter.name for parameter in parameters if parameter.type.startswith("dict")}
    required = [name for name, field in kind.model_fields.items() if field.is_required()]
    if issubclass(kind, SyncConfig):
        known += [INDEX_FILE, LIST_ONLY]
        required.append(INDEX_FILE)
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
    return given, _unknown_problems([name for name in dict.fromkeys(names) if name not in known], known)


def _overrides(given: Mapping[str, Any], kind: type[SyncConfig]) -> dict[str, Any]:
    """The parameters that win over an index file: a cell sets all others, too, to their defaults."""
    defaults = {parameter.name: parameter.default for parameter in kind.parameters()}
    # The cells leave opensearch_url empty, so its default is one that somebody chose.
    return {
        name: value
        for name, value in given.items()
        if name == "opensearch_url" or not _means(kind, name, value, defaults[name])
    }


def _means(kind: type[SyncConfig], name: str, value: object, expected: object) -> bool:
    """Whether a value, perhaps as a text, is this value of the parameter."""
    try:
        return bool(getattr(kind(**{"table": "catalog.namespace.table", name: value}), name) == expected)
    except ConfigError:
        return False


def _widget(dbutils: Any, name: str, value: object) -> str:
    # An existing widget keeps its value: what a job passes or a person typed wins over the cell.
    dbutils.widgets.text(name, widget_text(value), name)
    return str(dbutils.widgets.get(name))


def _through_widget(dbutils: Any, name: str, value: object, is_mapping: bool) -> str:
    in_cell, used = widget_text(value), _widget(dbutils, name, value)
    if (used.lower() if isinstance(value, bool) else used) != in_cell:
        shown, replaced = _shown(name, used, is_mapping), _shown(name, in_cell, is_mapping)
        print(f"{name}: the widget's value {shown} is used, not the cell's {replaced}")  # noqa: T201
    return used


def _shown(name: str, text: str, is_mapping: bool) -> str:
    """A value as a notebook may show it: a mapping may hold secrets, whatever its text looks like."""
    return "{...}" if is_mapping and text else repr(redact(name, text))[:200]


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
    others |= {INDEX_FILE, LIST_ONLY}
    meant = {name: likely_meant(name, known) for name in unknown if name not in others}
    ignored = [name for name in unknown if not meant.get(name)]
    if ignored:
        warnings.warn(f"Ignored, because they are no parameters here: {', '.join(ignored)}", stacklevel=4)
    return [f"{name}: unknown parameter. Remedy: did you mean {near}." for name, near in meant.items() if near]


def _is_plain(value: object) -> bool:
    return value is not None and isinstance(value, _PLAIN_TYPES)


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
    from icecdc_core.local.opensearch import cluster_at

    if cluster_at(config.opensearch_url):
        return config
    url = start_opensearch().url
    print(f"Embedded OpenSearch at {url}; `icecdc services down` stops it.")  # noqa: T201
    return config.replace(opensearch_url=url)


def open_spark(config: ParameterModel) -> SparkSession:
    """Return the session of `get_spark`; the output of a new JVM goes to a file instead of the notebook."""
    if running_session() is not None:
        return get_spark(config)
    with jvm_output_to_file() as log:
        spark = get_spark(config)
    print(f"Spark {spark.version}; its log is {log}")  # noqa: T201
    return spark


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
        IcecdcError: A check of a smoke test failed.
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
    if isinstance(report, SmokeReport):
        report.require_ok()
    dbutils = namespace.get("dbutils")
    if dbutils is not None:
        # This ends the notebook by an exception and returns the result to the job, so it must be the last statement.
        dbutils.notebook.exit(text)
