"""Tables of one schema share one parse of their records: read, routed, parsed and kept once, however many there are.

Without it every table parses its own part of what is kept, and every plan of such a parse costs time of its own. It is
worth it where several tables are known to have the same columns, and nothing of the records has to be seen before.
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
from icecdc_core.ingest.routing import TABLE, routed
from icecdc_core.ingest.tables.schema_evolution import FITS, ROW, can_stand_alone, fitted, fitted_alone
from icecdc_core.ingest.tables.table_columns import metadata_checks, payload_schema
from icecdc_core.ingest.tables.writer import needs_rows_alone
from icecdc_core.table.catalogs import load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

_RAW, _MISFIT, _NUMBER = "_icecdc_raw", "_icecdc_misfit", "_icecdc_number"
_KAFKA = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_OF_PAYLOAD = ("payload", "payload_type")
_AS_DECODED = (*_OF_PAYLOAD, "problem")
_MOST = 2000
"""Tables whose schemas are looked at; more would take longer than what they save."""


@dataclass(frozen=True)
class Shared:
    """Rows of several tables, parsed once.

    Attributes:
        kept: What all others are made of; it is kept until `kept.unpersist()`.
        of: Gives the rows of one of these tables, as `fitted` returns them, or, of `alone`, the rows only.
        alone: Whether all of the rows fit, and nothing is kept beside them.
        schema: The columns of all these tables.
        counts: Records of each of these tables that has any.
        elsewhere: How many records there are of other tables, by table; None: of no table.
        others: Those, as `routed` returns them; None where there are none.
    """

    kept: DataFrame
    of: Callable[[str], DataFrame]
    alone: bool
    schema: StructType
    counts: dict[str, int]
    elsewhere: dict[str | None, int]
    others: DataFrame | None


@dataclass
class Sharing:
    """Finds out which tables share a schema, once for a run, and parses their records together.

    Attributes:
        config: The job's parameters.
        candidates: Tables that records may go to.
    """

    config: IngestConfig
    candidates: Iterable[str]
    _group: tuple[list[str], StructType] | None = None
    _known: bool = False
    _alone: bool = True

    def share(self, decoded: DataFrame) -> Shared | None:
        """Parse the records of the tables that have one schema.

        Args:
            decoded: As `formats.decoded` returns it.

        Returns:
            Their rows, and the records of all others; None where there are no such tables, or the records have to be
            seen before.
        """
        config = self.config
        if not can_stand_alone(config):
            return None
        if not self._known:
            self._group, self._known = self._largest_group(decoded.sparkSession), True
        if self._group is None:
            return None
        names, schema = self._group
        if self._alone and needs_rows_alone(config) and _tells(schema, config.route_field):
            shared = self._rows_alone(decoded, names, schema)
            if shared is not None:
                return shared
            # What has to be kept of all records now will have to be kept of later ones too.
            self._alone = False
        raw = F.struct(*(F.col(column) for column in _AS_DECODED))
        parsed = fitted(decoded.withColumn(_RAW, raw), schema, config).withColumnRenamed("problem", _MISFIT)
        parsed = parsed.withColumn("problem", F.col(_RAW)["problem"])
        every = self._compact(routed(parsed, config, self._route_value(schema)), names)
        every, counts = kept_by(TABLE, every)
        within = {name: counts[name] for name in names if name in counts}
        elsewhere = {name: count for name, count in counts.items() if name not in within}
        others = every.where(F.col(TABLE).isNull() | ~F.col(TABLE).isin(names))
        others = others.select(
            TABLE, *_KAFKA, "op", *(F.col(_RAW)[column].alias(column) for column in _OF_PAYLOAD), "problem"
        )
        rows = every.drop(_RAW)
        return Shared(
            every,
            lambda name: rows.where(F.col(TABLE) == name).drop(TABLE),
            False,
            schema,
            within,
            elsewhere,
            others if elsewhere else None,
        )

    def _rows_alone(self, decoded: DataFrame, names: list[str], schema: StructType) -> Shared | None:
        """Rows with nothing beside them, the fastest way; None where not every record is a row of these tables."""
        parsed = fitted_alone(decoded, schema, self.config).withColumn("problem", F.when(~F.col(FITS), F.lit("")))
        rows = routed(parsed, self.config, F.col(ROW)[self.config.route_field])
        # Instead of its name, which would be kept, compared and counted with every row.
        numbers = decoded.sparkSession.range(1).select(F.posexplode(F.array(*map(F.lit, names))).alias(_NUMBER, TABLE))
        every, counts = kept_by(_NUMBER, rows.join(F.broadcast(numbers), TABLE, "left").select(_NUMBER, ROW))
        if None in counts:
            every.unpersist()
            return None
        place = {name: number for number, name in enumerate(names)}
        within = {name: counts[number] for name, number in place.items() if number in counts}
        return Shared(
            every,
            lambda name: every.where(F.col(_NUMBER) == place[name]).select(ROW),
            True,
            schema,
            within,
            {},
            None,
        )

    def _route_value(self, schema: StructType) -> Column | None:
        """The route field as it was parsed already; of a record that could not be, as it stands in the payload."""
        name = self.config.route_field
        if not name:
            return None
        found = field(F.col(_RAW)["payload"], name)
        return F.coalesce(F.col(ROW)[name], found) if _tells(schema, name) else found

    def _compact(self, rows: DataFrame, names: list[str]) -> DataFrame:
        """Keep of a record what is still needed: its bytes only where they may become a dead letter."""
        within = F.coalesce(F.col(TABLE).isin(names), F.lit(False))
        fits = within & F.col(FITS)
        # Why a record does not fit takes much longer to know than that it does.
        problem = F.when(~fits, F.coalesce("problem", F.when(within, F.col(_MISFIT))))
        letter = ~fits | (F.col("op") == "delete") | F.lit(self.config.mode == "upsert")
        kept = {column: F.col(column) for column in _KAFKA}
        for column in {"key", "value", "headers"} - set(self.config.metadata_columns):
            kept[column] = F.when(letter, F.col(column))
        taken = [value.alias(column) for column, value in kept.items()]
        raw = F.when(~within, F.col(_RAW)).alias(_RAW)
        judged = ("op", problem.alias("problem"), fits.alias(FITS))
        return rows.select(TABLE, *taken, *judged, F.when(within, F.col(ROW)).alias(ROW), raw)

    def _largest_group(self, spark: SparkSession) -> tuple[list[str], StructType] | None:
        """The tables of the schema that most of them have; None where no two have the same."""

        def schema(name: str) -> StructType | None:
            try:
                table = load_table(spark, name)
                # What is checked beside the payload is checked table by table.
                return None if metadata_checks(spark, table, self.config) else payload_schema(spark, table, self.config)
            except (IcecdcError, PySparkException, Py4JError):
                return None  # not made yet, or broken: that is told when it is written to

        looked_at = list(self.candidates)[:_MOST]
        with ThreadPoolExecutor(self.config.table_concurrency, "icecdc-ingest") as pool:
            found = zip(looked_at, pool.map(schema, looked_at), strict=True)
        schemas = {name: columns for name, columns in found if columns is not None}
        times = Counter(schema.json() for schema in schemas.values())
        if not times or times.most_common(1)[0][1] < 2:
            return None
        most = times.most_common(1)[0][0]
        names = [name for name, schema in schemas.items() if schema.json() == most]
        return names, schemas[names[0]]


def kept_by(column: str, records: DataFrame) -> tuple[DataFrame, dict[Any, int]]:
    """Keep records until `unpersist`, and count those of each value of a column.

    Sorted by it, so that reading the part of one value passes over the others.
    """
    kept = records.sortWithinPartitions(column).persist()
    try:
        return kept, {row[column]: int(row["count"]) for row in kept.groupBy(column).count().collect()}
    except BaseException:
        kept.unpersist()
        raise


def _tells(schema: StructType, route_field: str) -> bool:
    """Whether the route field is a column of these tables, so that it is parsed already."""
    return route_field in schema.names and isinstance(schema[route_field].dataType, StringType)
