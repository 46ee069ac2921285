"""What users select: projection and row filter, parsed by Spark, and which columns each field is computed from."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import NullType, StructField, StructType

from icecdc_core.columns import OWN_PREFIX, quoted
from icecdc_core.errors import ConfigError
from icecdc_core.session.jvm import failure_message, java_class
from icecdc_core.table.schema import find_ambiguous_names, is_case_sensitive, require_readable

# Plan nodes that keep each row: Spark's names for a selection and for the alias of a frame.
_PROJECT, _ALIAS = "Project", "SubqueryAlias"
_COLUMN = "AttributeReference"
_PLAIN = frozenset({"Alias", _COLUMN, "Cast"})
_OF_STRUCTS = frozenset({"GetStructField", "GetArrayStructFields"})

ALIAS = "AS "
"""Begins the first text of a stored select, if the table has an alias."""

Node = dict[str, Any]
Selections = Sequence[Sequence[list[Node]]]
"""The expressions of each selection, the last one first; each is a list of its nodes, in which children follow."""
Path = tuple[str, tuple[str, ...]]
"""The id of a column, and the names that lead to a field within it."""


@dataclass(frozen=True)
class Projection:
    function: Callable[[DataFrame], DataFrame]
    schema: StructType
    columns: tuple[str, ...]
    used_columns: frozenset[str]
    stored: tuple[str, ...]
    computed_from: frozenset[str] = frozenset()
    repeated: Mapping[str, str] = field(default_factory=dict)
    """By field: the column that it is, perhaps cast."""
    unreadable: tuple[str, ...] = ()

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the documents of rows, followed by the columns of these rows that are none of the table's."""
        beside = rows.columns[len(self.columns) :]
        # A column of the table may have the name of a change column; the expressions mean the table's.
        hidden = [f"{OWN_PREFIX}beside_{position}" for position in range(len(beside))]
        rows = rows.toDF(*self.columns, *hidden)
        nothing = [F.lit(None).alias(name) for name in self.unreadable]
        documents = self.function(rows.select(*map(quoted, self.columns), *nothing))
        column = java_class(rows.sparkSession, "org.apache.spark.sql.classic.ExpressionUtils").column
        for fields in find_selections(documents, rows):
            rows = rows.select(*(Column(column(fields.apply(at))) for at in range(fields.size())), *hidden)
        return rows.toDF(*self.schema.names, *beside)


class UsedColumns(NamedTuple):
    names: frozenset[str] = frozenset()
    computed_from: frozenset[str] = frozenset()


def open_projection(
    spark: SparkSession,
    schema: StructType,
    select: Sequence[str],
    alias: str,
    identifier_columns: Sequence[str],
    unreadable: Mapping[str, str],
) -> Projection:
    def function(rows: DataFrame) -> DataFrame:
        return (rows.alias(alias) if alias else rows).selectExpr(*select)

    def refused(problem: str) -> ConfigError:
        return ConfigError(
            f"select {problem}",
            subject="select",
            value=list(select),
            remedy="give expressions of DataFrame.selectExpr that make one row of each row, always the same",
        )

    # `* EXCEPT (...)` may name a column that Spark cannot read.
    with_all = StructType([*schema.fields, *(StructField(name, NullType()) for name in unreadable)])
    rows, constants = example_rows(spark, with_all)
    try:
        documents = function(rows)
        find_selections(documents, rows)
        problem = find_instability(documents, constants, function)
    except (PySparkException, Py4JError) as error:
        raise refused(f"is not a selection of the table's columns: {failure_message(str(error))}") from error
    except ValueError as error:
        raise refused(f"does not make one row of each row of the table (Spark plans {error})") from None
    if problem:
        raise refused(problem)
    # The fields of a document are distinguished without case; those in a struct as Spark does.
    apart, pairs = is_case_sensitive(spark), find_ambiguous_names(documents.schema)
    twice = {other.replace("\0", ".").lower() for one, other in pairs if one == other or not (apart and "\0" in other)}
    if twice:
        raise refused(f"makes fields twice (upper and lower case are the same): {', '.join(sorted(twice))}")
    nodes = json.loads(_plan(documents).toJSON())
    selections = [node["projectList"] for node in nodes if _class_of(node) == _PROJECT]
    columns = _column_names(nodes)
    repeated = _repeated(selections, columns)
    identifiers = {name.lower(): name for name in identifier_columns}
    for name in documents.schema.names:
        if identifiers.get(name.lower(), repeated.get(name)) != repeated.get(name):
            raise refused(
                f"makes a field '{name}' that is not the identifier column of that name, which cannot be masked, "
                "because its value is the document's id"
            )
    used = _used_columns(selections, columns)
    used_names = used.names if selections else frozenset(with_all.names)
    require_readable(unreadable, used_names)
    return Projection(
        function,
        documents.schema,
        tuple(schema.names),
        used_names,
        (*([f"{ALIAS}{alias}"] if alias else []), *select),
        used.computed_from,
        repeated,
        tuple(unreadable),
    )


def condition_columns(spark: SparkSession, schema: StructType, condition: str, alias: str = "") -> UsedColumns:
    """Check a row filter and return the columns it reads and the fields in them."""

    def function(rows: DataFrame) -> DataFrame:
        return (rows.alias(alias) if alias else rows).where(F.expr(condition))

    cause: Exception | None = None
    rows, constants = example_rows(spark, schema)
    try:
        filtered = function(rows)
        problem = find_instability(filtered, constants, function)
    except PySparkException as error:
        problem, cause = f"is not a condition over the table: {failure_message(str(error))}", error
    if problem:
        raise ConfigError(
            f"row_filter {problem}",
            subject="row_filter",
            value=condition,
            remedy="give one SQL condition over the columns, without subqueries, random functions or the current time",
        ) from cause
    nodes = json.loads(_plan(filtered).toJSON())
    return _used_columns([[nodes[0]["condition"]]], _column_names(nodes))


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def find_selections(documents: DataFrame, rows: DataFrame) -> list[Any]:
    """The lists of expressions by which Spark makes documents of rows, in order; ValueError names other nodes."""
    source, plan = _plan(rows), _plan(documents)
    selections = []
    while not plan.fastEquals(source):
        if plan.nodeName() == _PROJECT:
            selections.append(plan.projectList())
        elif plan.nodeName() != _ALIAS:
            raise ValueError(plan.nodeName())
        plan = plan.child()
    return selections[::-1]


@functools.lru_cache(maxsize=64)
def example_rows(spark: SparkSession, schema: StructType) -> tuple[DataFrame, DataFrame]:
    """Return two frames to analyse expressions with: without rows, and with one row of constants."""
    values = {"string": "a", "binary": bytearray(b"a")}
    constants = [F.lit(values.get(each.dataType.typeName())).cast(each.dataType).alias(each.name) for each in schema]
    return spark.createDataFrame([], schema), spark.range(1).select(*constants)


def find_instability(result: DataFrame, constants: DataFrame, function: Callable[[DataFrame], DataFrame]) -> str:
    """Say why the result of expressions may change while the row does not; empty if it cannot."""
    spark, plan = result.sparkSession, _plan(result)
    if not plan.subqueriesAll().isEmpty():
        return "has a subquery"
    replaced = java_class(spark, "org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions").apply(plan)
    current = java_class(spark, "org.apache.spark.sql.catalyst.trees.TreePattern").CURRENT_LIKE()
    # Texts such as `now` become the time of the query.
    fixed = java_class(spark, "org.apache.spark.sql.catalyst.optimizer.SpecialDatetimeValues").apply(replaced)
    is_stable = plan.deterministic() and not replaced.containsPattern(current) and fixed.fastEquals(replaced)
    # Spark folds random encryption of constants to another value each time.
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")  # PySpark prints what fails, pages long
    was_disabled, logger.disabled = logger.disabled, True
    try:
        one, other = (function(constants)._jdf.queryExecution().optimizedPlan() for _ in range(2))
        is_stable = is_stable and one.sameResult(other)
    except (PySparkException, Py4JError):
        pass  # an expression that constants like these cannot answer
    finally:
        logger.disabled = was_disabled
    return "" if is_stable else "is not deterministic"


def _class_of(node: Node) -> str:
    return str(node["class"]).rsplit(".", 1)[-1]


def _id_of(node: Node) -> str:
    return str((node.get("exprId") or {}).get("id", ""))


def _column_names(nodes: Sequence[Node]) -> dict[str, str]:
    return {_id_of(column[0]): str(column[0]["name"]) for column in nodes[-1]["output"]}


def _repeated(selections: Selections, column_names: Mapping[str, str]) -> dict[str, str]:
    known = dict(column_names)
    for selection in reversed(selections):
        for item in selection:
            if {_class_of(node) for node in item} <= _PLAIN and _id_of(item[-1]) in known:
                known[_id_of(item[0])] = known[_id_of(item[-1])]
    made = {name: key for key, name in column_names.items()}
    if selections:
        made = {str(item[0]["name"]): _id_of(item[0]) for item in selections[0]}
    return {name: known[key] for name, key in made.items() if key in known}


def _used_columns(selections: Selections, column_names: Mapping[str, str]) -> UsedColumns:
    """Return what the fields of the last selection use, through the selections before it."""
    used: set[str] = set()
    computed: set[Path] = set()
    for number, selection in enumerate(selections):
        for item in selection:
            key = _id_of(item[0])
            if number and key not in used:
                continue
            paths = [_path(item, position) for position, node in enumerate(item) if _class_of(node) == _COLUMN]
            used |= {column for column, _ in paths}
            inside = item[1:] if _class_of(item[0]) == "Alias" else item
            if paths and _class_of(inside[-1]) == _COLUMN and {_class_of(node) for node in inside[:-1]} <= _OF_STRUCTS:
                # A column or a field within it. What is computed from it is computed from what it repeats.
                computed |= {(column, path + rest) for column, path in paths for at, rest in computed if at == key}
            else:
                computed |= set(paths)
    return UsedColumns(
        frozenset(name for key, name in column_names.items() if key in used),
        frozenset(".".join((column_names[key], *path)) for key, path in computed if key in column_names),
    )


def _path(item: Sequence[Node], position: int) -> Path:
    """The path of the field that the nodes around a column take from it; the column's own without such nodes."""
    column, kind, names = _id_of(item[position]), item[position].get("dataType"), []
    while position and _class_of(item[position - 1]) in _OF_STRUCTS and isinstance(kind, dict):
        position -= 1
        if kind["type"] == "array":
            names.append("element")
            kind = kind["elementType"]
        inner = kind["fields"][item[position]["ordinal"]]
        names.append(str(inner["name"]))
        kind = inner["type"]
    return column, tuple(names)


def new_document_fields(was: str, now: str, projection: Projection | None = None) -> frozenset[str]:
    """Return the paths of new fields of documents; with a projection, of columns that it takes as they are."""
    if not was:
        return frozenset()
    before, after = (frozenset(_field_paths(json.loads(schema)["fields"])) for schema in (was, now))
    new = after - before
    if projection is None:
        return new
    return frozenset(
        f"{name}{path.removeprefix(column)}"
        for name, column in projection.repeated.items()
        for path in new
        if path == column or path.startswith(f"{column}.")
    )


def _field_paths(fields: Sequence[Mapping[str, Any]], prefix: str = "") -> Iterator[str]:
    for each in fields:
        path = f"{prefix}{each['name']}"
        yield path
        kind = each["type"]
        while isinstance(kind, Mapping) and kind["type"] == "list":  # a document has no level for a list
            kind = kind["element"]
        if isinstance(kind, Mapping) and kind["type"] == "struct":
            yield from _field_paths(kind["fields"], f"{path}.")
