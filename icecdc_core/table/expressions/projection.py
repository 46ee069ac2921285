"""The projection: the fields of a document, computed from one row of the table by Spark SQL or a Python function.

It is analysed once, on an empty frame, before anything is read. That shows the fields, the columns they are made of,
and whether the same row always gives the same document. Frames of table rows have further columns (where a row is, what
happened to it). These columns are kept: the projections that Spark made of the expressions are applied to each frame
with them added.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from icecdc_core.columns import OWN_PREFIX, quoted
from icecdc_core.errors import ConfigError
from icecdc_core.session.jvm import java_class
from icecdc_core.table.expressions.determinism import (
    EXTERNAL,
    SUBQUERIES,
    expression_names,
    is_stable,
    registered_functions,
)
from icecdc_core.table.expressions.field_origins import (
    FieldOrigin,
    expression_id,
    field_origins,
    is_attribute,
    node_class,
)
from icecdc_core.table.expressions.stars import without_excepted
from icecdc_core.table.expressions.time_zone import zone_of
from icecdc_core.table.expressions.used_columns import used_columns
from icecdc_core.table.schemas.projection import find_ambiguous_names, is_case_sensitive

# Plan nodes that keep each row: Spark's names for a selection and for the alias of a frame.
_PROJECT, _ALIAS = "Project", "SubqueryAlias"
_REMEDY = (
    "give expressions as DataFrame.selectExpr takes them, which make one row of one row and give the same result "
    "whenever they are computed"
)
_PLAIN = frozenset({"Alias", "AttributeReference", "Cast"})
# The process in which Spark numbered an expression.
_PROCESS = re.compile(r'"jvmId":"[^"]*"')


@dataclass(frozen=True)
class Projection:
    """The fields of a document as functions of a row."""

    function: Callable[[DataFrame], DataFrame]
    schema: StructType
    columns: tuple[str, ...]
    used_columns: frozenset[str]
    stored: tuple[str, ...]
    time_zone: str = ""
    computed_from: frozenset[str] = frozenset()
    origins: Mapping[str, FieldOrigin] = field(default_factory=dict)

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the documents of rows, followed by the columns of these rows that are none of the table's."""
        beside = names = rows.columns[len(self.columns) :]
        # A column of the table may have the name of a change column; the expressions mean the table's.
        if clash := not {name.lower() for name in self.columns}.isdisjoint(name.lower() for name in names):
            beside = [f"{OWN_PREFIX}beside_{position}" for position in range(len(names))]
            rows = rows.toDF(*self.columns, *beside)
        others = [quoted(name) for name in beside]
        documents = self.function(rows.select(*map(quoted, self.columns)))
        column = java_class(rows.sparkSession, "org.apache.spark.sql.classic.ExpressionUtils").column
        for fields in _selections(documents, rows):
            rows = rows.select(*(Column(column(fields.apply(at))) for at in range(fields.size())), *others)
        return rows.toDF(*self.schema.names, *names) if clash else rows


def open_projection(
    spark: SparkSession,
    schema: StructType,
    select: Sequence[str] | Callable[[DataFrame], DataFrame],
    alias: str,
    identifier_columns: Sequence[str],
    unreadable_columns: Collection[str] = (),
) -> Projection:
    """Analyse the expressions of a document, before anything is read."""
    shown = list(select) if not callable(select) else f"{getattr(select, '__name__', 'a function')}()"
    texts = () if callable(select) else [without_excepted(text, unreadable_columns) for text in select]
    function: Callable[[DataFrame], DataFrame] = select if callable(select) else _selection(texts, alias)
    analysed = _analyse(spark.createDataFrame([], schema), function, shown)
    names = expression_names(analysed.plan)
    if names & SUBQUERIES:
        raise _select_error("has a subquery", shown)
    if calls := sorted(names & EXTERNAL | (frozenset() if callable(select) else registered_functions(analysed.plan))):
        raise _select_error(f"calls code outside of Spark SQL ({', '.join(calls)})", shown)
    if not analysed.is_deterministic or not is_stable(analysed.plan, texts):
        raise _select_error("is not deterministic", shown)
    _require_distinct_names(spark, analysed.fields, shown)
    nodes = json.loads(analysed.plan)
    selections = [node["projectList"] for node in nodes if node_class(node) == _PROJECT]
    table_columns = {expression_id(column[0]): column[0]["name"] for column in nodes[-1]["output"]}
    _require_true_identifiers(selections, table_columns, identifier_columns, shown)
    used = used_columns(selections, table_columns)
    return Projection(
        function,
        analysed.fields,
        tuple(schema.names),
        used.names if selections else frozenset(schema.names),
        (f"function {analysed.digest}",) if callable(select) else (*([f"AS {alias}"] if alias else []), *select),
        zone_of(spark, selections),
        used.computed_from,
        field_origins(selections, table_columns),
    )


class _Analysed(NamedTuple):
    """What Spark's analysis says about a projection: its fields, its plan as JSON, and a digest of what it computes."""

    fields: StructType
    plan: str
    is_deterministic: bool
    digest: str


def _analyse(rows: DataFrame, function: Callable[[DataFrame], DataFrame], shown: object) -> _Analysed:
    """Apply the function to an empty frame with the table's columns; the result must be a selection of them."""
    try:
        documents = function(rows)
        if not isinstance(documents, DataFrame):
            raise _select_error(f"returns a {type(documents).__name__}, not a DataFrame", shown)
        fields, plan = documents.schema, _plan(documents)
        _selections(documents, rows)
        text, deterministic = str(plan.toJSON()), bool(plan.deterministic())
        return _Analysed(fields, text, deterministic, _digest(str(plan.canonicalized().toJSON()), fields))
    except (PySparkException, Py4JError) as error:
        raise _select_error(f"is not a selection of the table's columns: {_first_line(error)}", shown) from error
    except _OtherPlanError as error:
        problem = f"does not make one row of each row of the table (Spark plans {error})"
        raise _select_error(problem, shown) from None
    except ConfigError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise _select_error(f"fails with {type(error).__name__}: {error}", shown) from error


def _digest(canonical: str, fields: StructType) -> str:
    """A digest of what a function computes; a canonical plan has no names of fields."""
    return hashlib.sha256(f"{_PROCESS.sub('', canonical)}{fields.json()}".encode()).hexdigest()


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
