"""One shared parse for tables with the same columns: their records are read, routed, parsed and cached once.

Otherwise each table parses its own records, and each such plan takes time of its own. The shared parse needs several
tables with the same columns, and settings under which no record has to be inspected before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest.decoding import field
from icecdc_core.ingest.routing import TABLE, route_records
from icecdc_core.ingest.rows.row_parsing import IS_VALID, ROW, needs_no_inference, parse_rows, parse_rows_only
from icecdc_core.ingest.tables.schemas.columns import metadata_checks, payload_schema
from icecdc_core.ingest.tables.staging import needs_only_rows
from icecdc_core.session.jvm import unpersist
from icecdc_core.table.catalogs import load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

_RAW, _REASON, _NUMBER = "_icecdc_raw", "_icecdc_reason", "_icecdc_number"
_KAFKA = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_OF_PAYLOAD = ("payload", "payload_type")
_AS_DECODED = (*_OF_PAYLOAD, "problem")
_MOST_TABLES = 2000
"""How many tables are compared. With more, loading their schemas would take longer than the shared parse saves."""


@dataclass(frozen=True)
class SharedParse:
    """Records of several tables, parsed once."""

    cached: DataFrame
    rows_of: Callable[[str], DataFrame]
    rows_only: bool
    schema: StructType
    counts: dict[str, int]
    other_counts: dict[str | None, int]
    others: DataFrame | None


@dataclass
class SharedParser:
    """Finds the tables with the same columns, once for a run, and parses their records together."""

    config: IngestConfig
    candidates: Iterable[str]
    _group: tuple[list[str], StructType] | None = None
    _is_searched: bool = False
    _try_rows_only: bool = True

    def parse(self, decoded: DataFrame) -> SharedParse | None:
        """Parse the records of the tables that have the same columns."""
        config = self.config
        if not needs_no_inference(config):
            return None
        if not self._is_searched:
            self._group, self._is_searched = self._largest_group(decoded.sparkSession), True
        if self._group is None:
            return None
        names, schema = self._group
        if self._try_rows_only and needs_only_rows(config) and _has_text_column(schema, config.route_field):
            shared = self._parse_rows_only(decoded, names, schema)
            if shared is not None:
                return shared
            # One record without a row in these tables is usually followed by others, so this run caches whole records.
            self._try_rows_only = False
        raw = F.struct(*(F.col(column) for column in _AS_DECODED))
        parsed = parse_rows(decoded.withColumn(_RAW, raw), schema, config).withColumnRenamed("problem", _REASON)
        parsed = parsed.withColumn("problem", F.col(_RAW)["problem"])
        every = self._compact(route_records(parsed, config, self._route_value(schema)), names)
        every, counts = cache_and_count(TABLE, every)
        within = {name: counts[name] for name in names if name in counts}
        other_counts = {name: count for name, count in counts.items() if name not in within}
        others = every.where(F.col(TABLE).isNull() | ~F.col(TABLE).isin(names))
        others = others.select(
            TABLE, *_KAFKA, "op", "before", *(F.col(_RAW)[column].alias(column) for column in _OF_PAYLOAD), "problem"
        )
        rows = every.drop(_RAW)
        return SharedParse(
            cached=every,
            rows_of=lambda name: rows.where(F.col(TABLE) == name).drop(TABLE),
            rows_only=False,
            schema=schema,
            counts=within,
            other_counts=other_counts,
            others=others if other_counts else None,
        )

    def _parse_rows_only(self, decoded: DataFrame, names: list[str], schema: StructType) -> SharedParse | None:
        """Cache rows only, which is fastest; None if a record is no row of these tables."""
        parsed = parse_rows_only(decoded, schema, self.config).withColumn(
            "problem", F.when(~F.col(IS_VALID), F.lit(""))
        )
        rows = route_records(parsed, self.config, F.col(ROW)[self.config.route_field])
        # A number is cheaper than a table name to cache, compare and count with every row.
        numbers = decoded.sparkSession.range(1).select(F.posexplode(F.array(*map(F.lit, names))).alias(_NUMBER, TABLE))
        numbered = rows.join(F.broadcast(numbers), TABLE, "left").select(_NUMBER, ROW)
        every, counts = cache_and_count(_NUMBER, numbered)
        if None in counts:
            every.unpersist()
            return None
        number_of = {name: number for number, name in enumerate(names)}
        return SharedParse(
            cached=every,
            rows_of=lambda name: every.where(F.col(_NUMBER) == number_of[name]).select(ROW),
            rows_only=True,
            schema=schema,
            counts={name: counts[number] for name, number in number_of.items() if number in counts},
            other_counts={},
            others=None,
        )

    def _route_value(self, schema: StructType) -> Column | None:
        """The route field: from the parsed row, else from the payload."""
        name = self.config.route_field
        if not name:
            return None
        in_payload = field(F.col(_RAW)["payload"], name)
        return F.coalesce(F.col(ROW)[name], in_payload) if _has_text_column(schema, name) else in_payload

    def _compact(self, rows: DataFrame, names: list[str]) -> DataFrame:
        """Drop what is no longer needed: the bytes of a record are cached only if it may become a dead letter."""
        within = F.coalesce(F.col(TABLE).isin(names), F.lit(False))
        fits = within & F.col(IS_VALID)
        # The reason is evaluated only for records that do not fit, as it is much slower than the check.
        problem = F.when(~fits, F.coalesce("problem", F.when(within, F.col(_REASON))))
        may_be_rejected = ~fits | (F.col("op") == "delete") | F.lit(self.config.mode == "upsert")
        columns = {column: F.col(column) for column in _KAFKA}
        for column in {"key", "value", "headers"} - set(self.config.metadata_columns):
            columns[column] = F.when(may_be_rejected, F.col(column))
        metadata = [value.alias(column) for column, value in columns.items()]
        raw = F.when(~within, F.col(_RAW)).alias(_RAW)
        validated = ("op", "before", problem.alias("problem"), fits.alias(IS_VALID))
        return rows.select(TABLE, *metadata, *validated, F.when(within, F.col(ROW)).alias(ROW), raw)

    def _largest_group(self, spark: SparkSession) -> tuple[list[str], StructType] | None:
        """Return the tables with the most common schema; None if no two have the same."""

        def schema(name: str) -> StructType | None:
            try:
                table = load_table(spark, name)
                # The shared parse validates the payload only.
                return None if metadata_checks(spark, table, self.config) else payload_schema(spark, table, self.config)
            except (IcecdcError, PySparkException, Py4JError):
                return None  # missing or broken; the writer reports it

        compared = list(self.candidates)[:_MOST_TABLES]
        with ThreadPoolExecutor(self.config.table_concurrency, "icecdc-ingest") as pool:
            pairs = zip(compared, pool.map(schema, compared), strict=True)
        schemas = {name: columns for name, columns in pairs if columns is not None}
        times = Counter(schema.json() for schema in schemas.values())
        if not times or times.most_common(1)[0][1] < 2:
            return None
        most = times.most_common(1)[0][0]
        names = [name for name, schema in schemas.items() if schema.json() == most]
        return names, schemas[names[0]]


def cache_and_count(column: str, records: DataFrame) -> tuple[DataFrame, dict[Any, int]]:
    """Cache records, sorted by a column so that reading one of its values skips the others, and count each value."""
    cached = records.sortWithinPartitions(column).persist()
    try:
        return cached, {row[column]: int(row["count"]) for row in cached.groupBy(column).count().collect()}
    except BaseException:
        unpersist(cached)
        raise


def _has_text_column(schema: StructType, route_field: str) -> bool:
    """Whether the route field is a text column, so that the parsed row has it."""
    return route_field in schema.names and isinstance(schema[route_field].dataType, StringType)
