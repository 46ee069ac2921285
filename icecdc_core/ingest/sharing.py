"""Tables of one schema share one parse of their records: read, routed, parsed and kept once, however many there are.

Without it every table parses its own part of what is kept, and every plan of such a parse costs time of its own. It is
worth it where several tables are known to have the same columns, and nothing of the records has to be seen before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest.routing import TABLE
from icecdc_core.ingest.schemas import ROW, fitted
from icecdc_core.ingest.tables import payload_schema

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

_MOST = 2000
"""Tables whose schemas are looked at; more would take longer than what they save."""


@dataclass(frozen=True)
class Shared:
    """Rows of several tables, parsed once.

    Attributes:
        names: The tables.
        rows: As `fitted` returns them, and `TABLE`; kept until `rows.unpersist()`.
        schema: The columns of all these tables.
        counts: Records of each table that has any.
        others: Records that go elsewhere, or nowhere.
    """

    names: list[str]
    rows: DataFrame
    schema: StructType
    counts: dict[str, int]
    others: int


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
    _known: bool = field(default=False)

    def share(self, routed: DataFrame) -> Shared | None:
        """Parse the records of the tables that have one schema.

        Args:
            routed: As `routing.routed` returns it.

        Returns:
            Their rows; None where there are no such tables, or the records have to be seen before.
        """
        if (
            self.config.evolve_schema
            or self.config.column_case != "sensitive"
            or self.config.unknown_fields != "ignore"
        ):
            return None
        if not self._known:
            self._group, self._known = self._largest_group(routed.sparkSession), True
        if self._group is None:
            return None
        names, schema = self._group
        elsewhere = F.col(TABLE).isNull() | ~F.col(TABLE).isin(names)
        observed = Observation()
        counted = routed.observe(observed, F.count_if(elsewhere).alias("others"))
        rows = self._compact(fitted(counted.where(~elsewhere), schema, self.config))
        # Sorted, so that reading one table's part of what is kept passes over the others.
        rows = rows.sortWithinPartitions(TABLE).persist()
        counts = {row[TABLE]: int(row["count"]) for row in rows.groupBy(TABLE).count().collect()}
        return Shared(names, rows, schema, counts, int(observed.get["others"]))

    def _compact(self, rows: DataFrame) -> DataFrame:
        """Keep of a record what is still needed: its bytes only where they may become a dead letter."""
        letter = F.col("problem").isNotNull() | (F.col("op") == "delete") | F.lit(self.config.mode == "upsert")
        wanted = set(self.config.metadata_columns)
        for column in ("key", "value", "headers"):
            if column not in wanted:
                rows = rows.withColumn(column, F.when(letter, F.col(column)))
        return rows.select(
            TABLE, "topic", "partition", "offset", "timestamp", "key", "value", "headers", "op", "problem", ROW
        )

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
