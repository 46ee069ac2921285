"""Which expressions give the same result for the same row, by the names of Spark's classes.

Changes are found by comparing snapshots. If the result of an expression changed while the row does not, documents would
be stale, and no comparison of snapshots would show it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

# The result of these changes with the time, the user, the release or the session's variables.
_CHANGING = re.compile("Current[A-Z]|Now$|LocalTimestamp$|SparkVersion$|VariableReference$")
_MOVING = r"\s*(?:now|today|tomorrow|yesterday)\b"
_MOVING_VALUE = re.compile(_MOVING, re.IGNORECASE)
# Spark's parser makes values of these, so a plan shows only the texts of the time when it was made.
_MOVING_LITERAL = re.compile(rf"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*['\"]{_MOVING}", re.IGNORECASE)
_TO_TIMES = frozenset({"Cast", "ParseToDate", "ParseToTimestamp"})
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


def is_stable(plan_json: str, texts: Sequence[str] = ()) -> bool:
    """Return whether no expression of a plan changes its result while the row does not."""
    if any(_CHANGING.match(name) for name in expression_names(plan_json)):
        return False
    if any(_MOVING_LITERAL.search(text) for text in texts):
        return False
    return not any(
        _is_moving_time(outer, inner) or _is_random_encryption(nodes, position)
        for nodes in _expressions(json.loads(plan_json))
        for position, (outer, inner) in enumerate(pairwise(nodes))
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


def _is_moving_time(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    """Whether a text such as `now` becomes the time of the query."""
    if _name(outer) not in _TO_TIMES or _name(inner) != "Literal":
        return False
    is_time = _name(outer) != "Cast" or str(outer.get("dataType")).startswith(("date", "timestamp"))
    return is_time and bool(_MOVING_VALUE.match(str(inner.get("value"))))


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
