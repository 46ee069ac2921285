"""Which expressions give the same result for the same row, by the names of Spark's classes.

Changes are found by comparing snapshots. If the result of an expression changed while the row does not, documents would
be stale, and no comparison of snapshots would show it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.session.jvm import java_class

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
