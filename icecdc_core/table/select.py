"""What users select: projection and row filter, parsed by Spark, and what each field is computed from.

In: the texts of `select` and `row_filter`, and a table. Out: deterministic expressions, and the columns they use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructField, StructType

from icecdc_core.columns import OWN_PREFIX, quoted
from icecdc_core.errors import ConfigError, UnsupportedTypeError
from icecdc_core.session.jvm import java_class
from icecdc_core.table.schema import find_ambiguous_names, is_case_sensitive

# The result of these changes with the time, the user, the release or the session's variables.
_CHANGING = re.compile("Current[A-Z]|Now$|LocalTimestamp$|SparkVersion$|VariableReference$")
# Spark's parser makes values of these, so a plan shows only the texts of the time when it was made.
_MOVING_LITERAL = re.compile(
    r"\b(?:date|timestamp(?:_ltz|_ntz)?)(?:\s|/\*.*?\*/|--[^\n]*\n)*r?['\"]\s*(?:now|today|tomorrow|yesterday)\b",
    re.IGNORECASE | re.DOTALL,
)
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_MODE, _VECTOR = 2, 4
"""The places of these among the arguments of `aes_encrypt`."""

SUBQUERIES = frozenset({"InSubquery", "ListQuery", "ScalarSubquery", "Exists", "LateralSubquery"})
EXTERNAL = frozenset({"CallMethodViaReflection", "TryReflect"})
"""Functions that call any Java method."""

_REGISTERED = frozenset(
    {
        *("PythonUDF", "PythonUDTF", "ScalaUDF", "ScalaUDAF", "HiveSimpleUDF", "HiveGenericUDF"),
        *("SQLScalarFunction", "SQLFunctionExpression", "ApplyFunctionExpression"),
    }
)
# Functions of a catalog that Spark calls by their method of this name; its own functions are no such nodes.
_OF_CATALOGS, _METHOD = frozenset({"Invoke", "StaticInvoke"}), '"functionName":"invoke"'


def expression_names(plan_json: str) -> frozenset[str]:
    """Return the class names of the nodes and expressions of a plan, given as Spark writes it to JSON."""
    return frozenset(re.findall(r'"class":"[\w.$]*\.(\w+)"', plan_json))


def registered_functions(plan_json: str) -> frozenset[str]:
    """Return the class names of functions that somebody registered in the session or in a catalog.

    Another session may not have them or define them otherwise.
    """
    names = expression_names(plan_json)
    return names & (_REGISTERED | _OF_CATALOGS if _METHOD in plan_json else _REGISTERED)


def is_stable(spark: SparkSession, plan: Any, texts: Sequence[str] = ()) -> bool:
    """Return whether no expression of a plan in the JVM changes its result while the row does not.

    ``texts`` are the expressions as the user wrote them.
    """
    plan_json = str(plan.toJSON())
    if not plan.deterministic() or any(_CHANGING.match(name) for name in expression_names(plan_json)):
        return False
    if any(_MOVING_LITERAL.search(text) for text in texts) or _has_moving_time(spark, plan):
        return False
    return not any(
        _is_random_encryption(nodes, position)
        for nodes in _expressions(json.loads(plan_json))
        for position in range(len(nodes))
    )


def _expressions(value: Any) -> Iterator[list[dict[str, Any]]]:
    """The expressions of a plan; each is a list of its nodes, in which a node is followed by its first child."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _expressions(each)
    elif isinstance(value, list):
        if value and isinstance(value[0], dict) and "class" in value[0]:
            yield value
        for each in value:
            yield from _expressions(each)


def _has_moving_time(spark: SparkSession, plan: Any) -> bool:
    """Whether a text such as `now`, however it is computed, becomes the time of the query: Spark's own rule says so."""
    replaced = java_class(spark, f"{_OPTIMIZER}.ReplaceExpressions").apply(plan)
    return not java_class(spark, f"{_OPTIMIZER}.SpecialDatetimeValues").apply(replaced).fastEquals(replaced)


def _is_random_encryption(nodes: list[dict[str, Any]], position: int) -> bool:
    """Whether a node encrypts with a random initialization vector, which Spark takes for deterministic."""
    if _name(nodes[position]) != "AesEncrypt":
        return False
    arguments, begin = [], position + 1
    for _ in range(nodes[position]["num-children"]):
        end = end_of(nodes, begin)
        arguments.append(nodes[begin:end])
        begin = end
    is_ecb = str(arguments[_MODE][-1].get("value")).upper() == "ECB"
    return not is_ecb and arguments[_VECTOR][-1].get("value") == ""


def end_of(nodes: Sequence[dict[str, Any]], begin: int) -> int:
    """Return the position after a node and all that is inside it."""
    end = begin + 1
    for _ in range(nodes[begin]["num-children"]):
        end = end_of(nodes, end)
    return end


def _name(node: dict[str, Any]) -> str:
    return str(node.get("class", "")).rsplit(".", 1)[-1]


_PLAIN_NODES = frozenset({"Alias", "AttributeReference"})
_MASKING = frozenset({"Md5", "Sha1", "Sha2", "Crc32", "Murmur3Hash", "XxHash64", "Mask", "HashExpression"})


class FieldOrigin(NamedTuple):
    """Where a field comes from."""

    columns: frozenset[str]
    is_identity: bool = False
    is_masked: bool = False


def field_origins(
    selections: Sequence[list[list[dict[str, Any]]]], table_columns: Mapping[str, str]
) -> dict[str, FieldOrigin]:
    """Return the origin of each field."""
    known = {key: FieldOrigin(frozenset({name}), is_identity=True) for key, name in table_columns.items()}
    for number, selection in enumerate(reversed(selections), 1):
        made = {expression_id(item[0]): _field_origin(item, known) for item in selection}
        if number == len(selections):
            return {str(item[0]["name"]): made[expression_id(item[0])] for item in selection}
        known |= made
    return {name: known[key] for key, name in table_columns.items()}


def node_class(node: dict[str, Any]) -> str:
    """The class of a node of a plan, without its package."""
    return str(node["class"]).rsplit(".", 1)[-1]


def expression_id(node: dict[str, Any]) -> str:
    """The id that Spark gave a named expression; empty if it has none."""
    return str((node.get("exprId") or {}).get("id", ""))


def is_attribute(node: dict[str, Any]) -> bool:
    """Whether a node stands for a column."""
    return node_class(node) == "AttributeReference"


def _field_origin(item: Sequence[dict[str, Any]], known: Mapping[str, FieldOrigin]) -> FieldOrigin:
    sources, shown = _sources(item, known), _sources(_outside_of_masks(item), known)
    return FieldOrigin(
        frozenset[str]().union(*(source.columns for source in sources)),
        is_identity=len(sources) == 1
        and sources[0].is_identity
        and {node_class(node) for node in item} <= _PLAIN_NODES,
        is_masked=bool(sources) and all(source.is_masked for source in shown),
    )


def _sources(nodes: Iterable[dict[str, Any]], known: Mapping[str, FieldOrigin]) -> list[FieldOrigin]:
    return [known[expression_id(node)] for node in nodes if is_attribute(node) and expression_id(node) in known]


def _outside_of_masks(item: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The nodes of an expression that are in no hash."""
    position = 0
    while position < len(item):
        if node_class(item[position]) in _MASKING:
            position = end_of(item, position)
        else:
            yield item[position]
            position += 1


_OF_STRUCTS = frozenset({"GetStructField", "GetArrayStructFields"})

Node = dict[str, Any]
Path = tuple[str, tuple[str, ...]]
"""The id of a column, and the names that lead to a field within it."""


class UsedColumns(NamedTuple):
    """What expressions use."""

    names: frozenset[str] = frozenset()
    computed_from: frozenset[str] = frozenset()


def used_columns(selections: Sequence[Sequence[list[Node]]], table_columns: Mapping[str, str]) -> UsedColumns:
    """Return what the fields of the last selection use, through the selections before it."""
    used: set[str] = set()
    computed: set[Path] = set()
    for number, selection in enumerate(selections):
        for item in selection:
            key = expression_id(item[0])
            if number and key not in used:
                continue
            paths = _paths(item)
            used |= {column for column, _ in paths}
            if _only_repeats(item):
                # What is computed from the field is computed from what it repeats.
                computed |= {(column, path + rest) for column, path in paths for at, rest in computed if at == key}
            else:
                computed |= set(paths)
    return UsedColumns(
        frozenset(name for key, name in table_columns.items() if key in used),
        frozenset(".".join((table_columns[key], *path)) for key, path in computed if key in table_columns),
    )


def _only_repeats(item: Sequence[Node]) -> bool:
    """Whether an expression is a column or a field within it, perhaps under another name."""
    inside = item[1:] if node_class(item[0]) == "Alias" else item
    return bool(inside) and is_attribute(inside[-1]) and all(node_class(node) in _OF_STRUCTS for node in inside[:-1])


def _paths(item: Sequence[Node]) -> list[Path]:
    return [_path(item, position) for position, node in enumerate(item) if is_attribute(node)]


def _path(item: Sequence[Node], position: int) -> Path:
    """The path of the field that the nodes around a column take from it; the column's own without such nodes."""
    column, kind, names = expression_id(item[position]), item[position].get("dataType"), []
    while position and node_class(item[position - 1]) in _OF_STRUCTS and isinstance(kind, dict):
        position -= 1
        if kind["type"] == "array":
            names.append("element")
            kind = kind["elementType"]
        field = kind["fields"][item[position]["ordinal"]]
        names.append(str(field["name"]))
        kind = field["type"]
    return column, tuple(names)


# Plan nodes that keep each row: Spark's names for a selection and for the alias of a frame.
_PROJECT, _ALIAS = "Project", "SubqueryAlias"
_REMEDY = (
    "give expressions as DataFrame.selectExpr takes them, which make one row of one row and give the same result "
    "whenever they are computed"
)
_PLAIN = frozenset({"Alias", "AttributeReference", "Cast"})


@dataclass(frozen=True)
class Projection:
    """The fields of a document as functions of a row."""

    function: Callable[[DataFrame], DataFrame]
    schema: StructType
    columns: tuple[str, ...]
    used_columns: frozenset[str]
    stored: tuple[str, ...]
    computed_from: frozenset[str] = frozenset()
    origins: Mapping[str, FieldOrigin] = field(default_factory=dict)
    placeholders: tuple[str, ...] = ()

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the documents of rows, followed by the columns of these rows that are none of the table's."""
        beside = names = rows.columns[len(self.columns) :]
        # A column of the table may have the name of a change column; the expressions mean the table's.
        known = {name.lower() for name in (*self.columns, *self.placeholders)}
        if clash := not known.isdisjoint(name.lower() for name in names):
            beside = [f"{OWN_PREFIX}beside_{position}" for position in range(len(names))]
            rows = rows.toDF(*self.columns, *beside)
        others = [quoted(name) for name in beside]
        nothing = [F.lit(None).alias(name) for name in self.placeholders]
        documents = self.function(rows.select(*map(quoted, self.columns), *nothing))
        column = java_class(rows.sparkSession, "org.apache.spark.sql.classic.ExpressionUtils").column
        for fields in _selections(documents, rows):
            rows = rows.select(*(Column(column(fields.apply(at))) for at in range(fields.size())), *others)
        return rows.toDF(*self.schema.names, *names) if clash else rows


def open_projection(
    spark: SparkSession,
    schema: StructType,
    select: Sequence[str],
    alias: str,
    identifier_columns: Sequence[str],
    unreadable: Mapping[str, str] = {},
) -> Projection:
    """Analyse the expressions of a document, before anything is read."""
    shown = texts = list(select)
    function = _selection(texts, alias)
    placeholders = tuple(unreadable)
    with_all = StructType([*schema.fields, *(StructField(name, NullType()) for name in placeholders)])
    analysed = _analyse(spark.createDataFrame([], with_all), function, shown, texts)
    names = expression_names(analysed.plan)
    if names & SUBQUERIES:
        raise _select_error("has a subquery", shown)
    if calls := sorted(names & EXTERNAL | registered_functions(analysed.plan)):
        raise _select_error(f"calls code outside of Spark SQL ({', '.join(calls)})", shown)
    if not analysed.is_deterministic:
        raise _select_error("is not deterministic", shown)
    _require_distinct_names(spark, analysed.fields, shown)
    nodes = json.loads(analysed.plan)
    selections = [node["projectList"] for node in nodes if node_class(node) == _PROJECT]
    table_columns = {expression_id(column[0]): column[0]["name"] for column in nodes[-1]["output"]}
    _require_true_identifiers(selections, table_columns, identifier_columns, shown)
    used = used_columns(selections, table_columns)
    names_used = used.names if selections else frozenset(with_all.names)
    for name in names_used & unreadable.keys():
        raise UnsupportedTypeError(
            f"Column '{name}' {unreadable[name]}, and select takes it in",
            subject="column",
            value=name,
            remedy=f"make select a list of expressions with the columns by name or * EXCEPT ({quoted(name)}) "
            "(Spark 4.1 and newer), or change it in the table",
        )
    return Projection(
        function,
        analysed.fields,
        tuple(schema.names),
        names_used,
        (*([f"AS {alias}"] if alias else []), *select),
        used.computed_from,
        field_origins(selections, table_columns),
        placeholders,
    )


class _Analysed(NamedTuple):
    """What Spark's analysis says about a projection: its fields, and its plan as JSON."""

    fields: StructType
    plan: str
    is_deterministic: bool


def _analyse(
    rows: DataFrame, function: Callable[[DataFrame], DataFrame], shown: object, texts: Sequence[str]
) -> _Analysed:
    """Apply the expressions to an empty frame with the table's columns; the result must be a selection of them."""
    try:
        documents = function(rows)
        plan = _plan(documents)
        _selections(documents, rows)
        return _Analysed(documents.schema, str(plan.toJSON()), is_stable(rows.sparkSession, plan, texts))
    except (PySparkException, Py4JError) as error:
        raise _select_error(f"is not a selection of the table's columns: {_first_line(error)}", shown) from error
    except _OtherPlanError as error:
        problem = f"does not make one row of each row of the table (Spark plans {error})"
        raise _select_error(problem, shown) from None


def _selection(texts: Sequence[str], alias: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: (rows.alias(alias) if alias else rows).selectExpr(*texts)


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


class _OtherPlanError(Exception):
    """A plan is not made of selections only; the text is the name of what else it has."""


def _selections(documents: DataFrame, rows: DataFrame) -> list[Any]:
    """The lists of expressions by which Spark makes documents of rows, the first one first."""
    source, plan = _plan(rows), _plan(documents)
    selections = []
    while not plan.fastEquals(source):
        if plan.nodeName() == _PROJECT:
            selections.append(plan.projectList())
        elif plan.nodeName() != _ALIAS:
            raise _OtherPlanError(plan.nodeName())
        plan = plan.child()
    return selections[::-1]


def _require_distinct_names(spark: SparkSession, fields: StructType, shown: object) -> None:
    """The fields of a document are distinguished without case; those in a struct as Spark does."""
    apart = is_case_sensitive(spark)
    twice = {
        other.replace("\0", ".").lower()
        for one, other in find_ambiguous_names(fields)
        if one == other or not apart or "\0" not in other
    }
    if twice:
        raise _select_error(
            f"makes fields twice (upper and lower case are the same): {', '.join(sorted(twice))}", shown
        )


def _require_true_identifiers(
    selections: Sequence[list[list[dict[str, Any]]]],
    table_columns: dict[str, str],
    identifier_columns: Sequence[str],
    shown: object,
) -> None:
    """A field that is called like an identifier column has its value: it could not be masked, the id has it too."""
    by_id = {
        expression_id(item[0]): item for fields in reversed(selections) for item in fields if not is_attribute(item[0])
    }
    known = {name.lower(): name for name in identifier_columns}
    for item in selections[0] if selections else []:
        column = known.get(str(item[0]["name"]).lower())
        if column is not None and table_columns.get(_origin(item, by_id)) != column:
            raise _select_error(
                f"makes a field '{item[0]['name']}' that is not the identifier column of that name",
                shown,
                "give the field another name; an identifier column cannot be masked, because its value is the "
                "document's id",
            )


def _origin(item: list[dict[str, Any]], by_id: dict[str, list[dict[str, Any]]]) -> str:
    """The column that a field is, perhaps cast; empty if it is computed otherwise."""
    while True:
        if {node_class(node) for node in item} - _PLAIN:
            return ""
        source = expression_id(item[-1])
        if source not in by_id:
            return source
        item = by_id[source]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _select_error(problem: str, shown: object, remedy: str = _REMEDY) -> ConfigError:
    return ConfigError(f"select {problem}", subject="select", value=shown, remedy=remedy)


_ALL = ".*"


def new_document_fields(
    was: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], projection: Projection | None = None
) -> frozenset[str]:
    """Return the paths of the fields that documents got.

    With a projection these are fields of columns that it takes as they are (``*``, ``place AS p``), and what
    ``place.*`` takes out of a struct. Other fields may come from a new column, but every document has them already.
    """
    new = frozenset(_field_paths(now)) - frozenset(_field_paths(was))
    if projection is None:
        return new
    columns = {name: next(iter(origin.columns)) for name, origin in projection.origins.items() if origin.is_identity}
    repeated = {f"{name}{path}" for name, column in columns.items() for path in _below(new, column)}
    structs = [item.removesuffix(_ALL).strip("`") for item in projection.stored if item.endswith(_ALL)]
    taken_out = {path.removeprefix(".") for struct in structs for path in _below(new, struct) if path}
    return frozenset(repeated | taken_out)


def _below(paths: Collection[str], column: str) -> Iterator[str]:
    """The rest of the paths that begin with a column; empty for the column itself."""
    for path in paths:
        if path == column or path.startswith(f"{column}."):
            yield path.removeprefix(column)


def _field_paths(fields: Sequence[Mapping[str, Any]], prefix: str = "") -> Iterator[str]:
    for each in fields:
        path = f"{prefix}{each['name']}"
        yield path
        kind = each["type"]
        while isinstance(kind, Mapping) and kind["type"] == "list":  # a document has no level for a list
            kind = kind["element"]
        if isinstance(kind, Mapping) and kind["type"] == "struct":
            yield from _field_paths(kind["fields"], f"{path}.")


def condition_columns(spark: SparkSession, schema: StructType, condition: str) -> UsedColumns:
    """Check a row filter and return the columns it reads and the fields in them."""
    remedy = "give one SQL condition over the table's columns, without subqueries, random functions or the current time"
    try:
        probe = spark.createDataFrame([], schema).where(F.expr(condition))
        plan = probe._jdf.queryExecution().analyzed()
        text = plan.toJSON()
        expressions = expression_names(text)
        stable = is_stable(spark, plan, [condition])
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"row_filter is not a condition over the table: {reason}",
            subject="row_filter",
            value=condition,
            remedy=remedy,
        ) from error
    if expressions & SUBQUERIES:
        raise ConfigError("row_filter has a subquery", subject="row_filter", value=condition, remedy=remedy)
    if calls := sorted(expressions & EXTERNAL | registered_functions(text)):
        problem = f"row_filter calls code outside of Spark SQL ({', '.join(calls)})"
        raise ConfigError(problem, subject="row_filter", value=condition, remedy=remedy)
    if not stable:
        raise ConfigError("row_filter is not deterministic", subject="row_filter", value=condition, remedy=remedy)
    nodes = json.loads(text)
    table_columns = {expression_id(column[0]): column[0]["name"] for column in nodes[-1]["output"]}
    selections = [[nodes[0]["condition"]]]
    return used_columns(selections, table_columns)
