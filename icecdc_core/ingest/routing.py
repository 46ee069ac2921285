"""Routing: the tables of each record, by a fixed name, by expressions, by a field or by the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from icecdc_core.errors import ConfigError
from icecdc_core.ingest.config import quoted_table
from icecdc_core.ingest.formats.decode_results import json_field
from icecdc_core.session.jvm import java_class
from icecdc_core.table.catalogs import describe_failure

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

TABLE = "_icecdc_table"
"""Column with the name of the record's table, every part quoted; null if it has none, with the reason in `problem`."""

_VALUE = "_icecdc_route"

# Table names that records may use: they must not reach other namespaces, and every catalog must accept them.
_NAME = "[A-Za-z0-9_][A-Za-z0-9_-]{0,127}"
_NOT_IN_A_NAME = "[^A-Za-z0-9_-]"


def route_records(decoded: DataFrame, config: IngestConfig, named_by: Column | None = None) -> DataFrame:
    """Add the table of each record; one that goes to several tables becomes several rows."""
    if config.route_by == "table":
        return decoded.withColumn(TABLE, F.lit(quoted_table(config.table)))
    value = F.col("topic")
    if config.route_field:
        # Spark repeats a deterministic expression wherever its column is used, and would parse the record each time.
        named = json_field(F.col("payload"), config.route_field) if named_by is None else named_by
        once = F.when(F.monotonically_increasing_id() >= 0, named)
        decoded, value = decoded.withColumn(_VALUE, once), F.col(_VALUE)
    if config.route_by == "regex":
        return _by_expression(decoded, config, value).drop(_VALUE)
    if config.route_by == "topic":
        value = F.regexp_replace("topic", _NOT_IN_A_NAME, "_")
    named = F.when(value.rlike(f"^{_NAME}$"), value)
    problem = F.when(value.isNull(), F.lit(f"no table: the field {config.route_field} is missing"))
    problem = problem.when(
        named.isNull(), F.concat(F.lit(f"no table: the field {config.route_field} has "), F.substring(value, 1, 200))
    )
    table = F.concat(F.lit(f"{config.quoted_namespace}.`"), named, F.lit("`"))
    return _with_problem(decoded.withColumn(TABLE, table), problem).drop(_VALUE)


def check_expressions(spark: SparkSession, config: IngestConfig) -> None:
    """Check the regular expressions with Java, which Spark and Kafka's client use."""
    given = [("topic_pattern", config.topic_pattern, config.topic_pattern)]
    given += [("routes", expression, _whole(expression)) for expression in config.routes.values()]
    pattern = java_class(spark, "java.util.regex.Pattern")
    for parameter, shown, expression in given:
        try:
            pattern.compile(expression)
        except (Py4JError, PySparkException) as error:
            raise ConfigError(
                f"This is not a Java regular expression: {describe_failure(error)}",
                subject=parameter,
                value=shown,
                remedy="correct it; the documentation of java.util.regex.Pattern describes the syntax",
            ) from error


def _whole(expression: str) -> str:
    return f"^(?:{expression})$"


def _by_expression(decoded: DataFrame, config: IngestConfig, value: Column) -> DataFrame:
    tables = [
        F.when(value.rlike(_whole(expression)), F.lit(quoted_table(table)))
        for table, expression in config.routes.items()
    ]
    # A record that could not be decoded has no table, so it is one dead letter, however many expressions match.
    matching = F.when(F.col("problem").isNull(), F.filter(F.array(*tables), lambda table: table.isNotNull()))
    what = f"the field {config.route_field}" if config.route_field else "the topic"
    shown = F.coalesce(F.substring(value, 1, 200), F.lit("nothing"))
    problem = F.when(F.col(TABLE).isNull(), F.concat(F.lit(f"no table: no expression matches {what}: "), shown))
    return _with_problem(decoded.withColumn(TABLE, F.explode_outer(matching)), problem)


def _with_problem(routed: DataFrame, problem: Column) -> DataFrame:
    """A record that could not be decoded keeps that problem, and has no table."""
    routed = routed.withColumn(TABLE, F.when(F.col("problem").isNull(), F.col(TABLE)))
    return routed.withColumn("problem", F.coalesce("problem", problem))
