"""Find out whether the result of an expression depends on the time zone of the session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.table.expressions.determinism import end_of
from icecdc_core.table.expressions.field_origins import node_class

# They read or write times of the session's zone as texts, so no type of the plan shows the time.
_ZONED = frozenset({"FromUnixTime", "UnixTimestamp", "ToUnixTimestamp"})
_TIMES = ('"timestamp"', '"variant"', "Timestamp")
# They have the zone whatever the types of their values are.
_OF_ANY_TYPE = frozenset(
    {"Cast", "JsonToStructs", "StructsToJson", "CsvToStructs", "StructsToCsv", "XmlToStructs", "StructsToXml"}
)


def zone_of(spark: SparkSession, selections: Sequence[list[list[dict[str, Any]]]]) -> str:
    """Return the session's time zone if an expression depends on it, else an empty text."""
    items = [item for fields in selections for item in fields]
    depends = any(_depends_on_zone(item, position) for item in items for position in range(len(item)))
    return (spark.conf.get("spark.sql.session.timeZone", "") or "") if depends else ""


def _depends_on_zone(item: Sequence[dict[str, Any]], position: int) -> bool:
    """Whether a node of an expression is computed in the session's time zone."""
    node, kind = item[position], node_class(item[position])
    if kind in _ZONED:
        return True
    if kind == "Literal":  # Spark's parser reads `timestamp '2026-01-31'` in the zone
        return bool(node.get("dataType") == "timestamp")
    if not isinstance(node.get("timeZoneId"), str):
        return False
    text = json.dumps(item[position : end_of(item, position)])
    return kind not in _OF_ANY_TYPE or any(each in text for each in _TIMES)
