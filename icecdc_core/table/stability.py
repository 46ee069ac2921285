"""Which expressions give the same result for the same row, by the names of Spark's classes.

Changes are found by comparing snapshots. If the result of an expression changed while the row does not, documents would
be stale, and no comparison of snapshots would show it.
"""

from __future__ import annotations

import re

# The result of these changes with the time, the user or the release.
_CHANGING = re.compile("Current[A-Z]|Now$|LocalTimestamp$|SparkVersion$")

SUBQUERIES = frozenset({"InSubquery", "ListQuery", "ScalarSubquery", "Exists", "LateralSubquery"})
EXTERNAL = frozenset({"CallMethodViaReflection", "TryReflect"})
"""Functions that call any Java method."""

USER_DEFINED = frozenset({"PythonUDF", "PythonUDTF", "ScalaUDF", "ScalaUDAF", "HiveSimpleUDF", "HiveGenericUDF"})
"""Functions that somebody registered in the session, which another session may not have or define otherwise."""


def expression_names(plan_json: str) -> frozenset[str]:
    """Return the class names of the nodes and expressions of a plan, given as Spark writes it to JSON."""
    return frozenset(re.findall(r'"class":"[\w.$]*\.(\w+)"', plan_json))


def is_stable(names: frozenset[str]) -> bool:
    """Whether none of these expressions changes its result while the row does not."""
    return not any(_CHANGING.match(name) for name in names)
