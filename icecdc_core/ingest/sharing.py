"""Tables of one schema share one parse of their records: read, routed, parsed and kept once, however many there are.

Without it every table parses its own part of what is kept, and every plan of such a parse costs time of its own. It is
worth it where several tables are known to have the same columns, and nothing of the records has to be seen before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest.formats import field
from icecdc_core.ingest.routing import TABLE, routed
from icecdc_core.ingest.schemas import FITS, ROW, fitted
from icecdc_core.ingest.tables import payload_schema

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

_RAW, _MISFIT = "_icecdc_raw", "_icecdc_misfit"
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
        rows: Rows as `fitted` returns them, and `TABLE`.
        schema: The columns of all these tables.
        counts: Records of each of these tables that has any.
        others: Records of other tables and of none, as `routed` returns them.
        elsewhere: How many those are, by table; None: of no table.
    """

    kept: DataFrame
    rows: DataFrame
    schema: StructType
    counts: dict[str, int]
    others: DataFrame
    elsewhere: dict[str | None, int]


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

    def share(self, decoded: DataFrame) -> Shared | None:
        """Parse the records of the tables that have one schema.

        Args:
            decoded: As `formats.decoded` returns it.

        Returns:
            Their rows, and the records of all others; None where there are no such tables, or the records have to be
            seen before.
        """
        config = self.config
        if config.evolve_schema or config.column_case != "sensitive" or config.unknown_fields != "ignore":
            return None
        if not self._known:
            self._group, self._known = self._largest_group(decoded.sparkSession), True
        if self._group is None:
            return None
        names, schema = self._group
        raw = F.struct(*(F.col(column) for column in _AS_DECODED))
        parsed = fitted(decoded.withColumn(_RAW, raw), schema, config).withColumnRenamed("problem", _MISFIT)
        parsed = parsed.withColumn("problem", F.col(_RAW)["problem"])
        every = self._compact(routed(parsed, config, self._route_value(schema)), names)
        # Sorted, so that reading one table's part of what is kept passes over the others.
        every = every.sortWithinPartitions(TABLE).persist()
        counts = {row[TABLE]: int(row["count"]) for row in every.groupBy(TABLE).count().collect()}
        within = {name: counts[name] for name in names if name in counts}
        elsewhere = {name: count for name, count in counts.items() if name not in within}
        others = every.where(F.col(TABLE).isNull() | ~F.col(TABLE).isin(names))
        others = others.select(
            TABLE, *_KAFKA, "op", *(F.col(_RAW)[column].alias(column) for column in _OF_PAYLOAD), "problem"
        )
        return Shared(every, every.drop(_RAW), schema, within, others, elsewhere)

    def _route_value(self, schema: StructType) -> Column | None:
        """The route field as it was parsed already; of a record that could not be, as it stands in the payload."""
        name = self.config.route_field
        if not name:
            return None
        found = field(F.col(_RAW)["payload"], name)
        if name in schema.names and isinstance(schema[name].dataType, StringType):
            return F.coalesce(F.col(ROW)[name], found)
        return found

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
        schemas: dict[str, StructType] = {}
        for name in list(self.candidates)[:_MOST]:
            try:
                schemas[name] = payload_schema(spark, name, self.config)
            except (IcecdcError, PySparkException, Py4JError):
                continue  # not made yet, or broken: that is told when it is written to
        times = Counter(schema.json() for schema in schemas.values())
        if not times or times.most_common(1)[0][1] < 2:
            return None
        most = times.most_common(1)[0][0]
        names = [name for name, schema in schemas.items() if schema.json() == most]
        return names, schemas[names[0]]
