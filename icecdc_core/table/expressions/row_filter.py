"""The row filter: a condition that gives the same answer for the same row, and the columns it reads."""

from __future__ import annotations

import json

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.errors import ConfigError
from icecdc_core.table.expressions.determinism import SUBQUERIES, expression_names, is_stable
from icecdc_core.table.expressions.field_origins import expression_id
from icecdc_core.table.expressions.time_zone import zone_of
from icecdc_core.table.expressions.used_columns import UsedColumns, used_columns


def condition_columns(spark: SparkSession, schema: StructType, condition: str) -> UsedColumns:
    """Check a row filter and return the columns it reads, the fields in them, and the time zone it depends on."""
    remedy = "give one SQL condition over the table's columns, without subqueries, random functions or the current time"
    try:
        probe = spark.createDataFrame([], schema).where(F.expr(condition))
        plan = probe._jdf.queryExecution().analyzed()
        text = plan.toJSON()
        expressions = expression_names(text)
        stable = bool(plan.deterministic()) and is_stable(text, [condition])
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
    if not stable:
        raise ConfigError("row_filter is not deterministic", subject="row_filter", value=condition, remedy=remedy)
    nodes = json.loads(text)
    table_columns = {expression_id(column[0]): column[0]["name"] for column in nodes[-1]["output"]}
    selections = [[nodes[0]["condition"]]]
    return used_columns(selections, table_columns)._replace(time_zone=zone_of(spark, selections))
