"""The demo's tables and its day of operations; every statement is a constant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from icecdc_core.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "lake"
NAMESPACE = f"{CATALOG}.demo"


@dataclass(frozen=True)
class DemoTable:
    """A table of the demo: its name, its identifier columns and its partition column."""

    name: str
    identifier_columns: tuple[str, ...]
    partitioned_by: str = ""

    @property
    def full_name(self) -> str:
        """Catalog, namespace and table."""
        return f"{NAMESPACE}.{self.name}"


FLIGHTS = DemoTable("flights", ("time_hour", "carrier", "flight"), partitioned_by="origin")
TABLES = (
    FLIGHTS,
    DemoTable("planes", ("tailnum",)),
    DemoTable("airports", ("faa",)),
    DemoTable("airlines", ("carrier",)),
    DemoTable("weather", ("time_hour", "origin")),
)

# Each statement is one snapshot of its table.
DAY: tuple[tuple[str, str], ...] = (
    (
        "cancelled flights are deleted",
        "DELETE FROM lake.demo.flights WHERE dep_time IS NULL",
    ),
    (
        "delays of a stormy week are corrected",
        """UPDATE lake.demo.flights SET dep_delay = dep_delay - 15, arr_delay = arr_delay - 15
        WHERE month = 7 AND day BETWEEN 7 AND 13 AND dep_delay > 60""",
    ),
    (
        "late reports arrive: known flights are updated, new ones inserted",
        """MERGE INTO lake.demo.flights AS known USING (
            SELECT * FROM lake.demo.flights WHERE month = 12 AND day = 31 AND carrier = 'B6'
            UNION ALL
            SELECT 2014 AS year, 1 AS month, 1 AS day, dep_time, sched_dep_time, dep_delay, arr_time, sched_arr_time,
                arr_delay, carrier, flight, tailnum, origin, dest, air_time, distance, hour, minute,
                time_hour + INTERVAL 1 DAY AS time_hour
            FROM lake.demo.flights WHERE month = 12 AND day = 31 AND carrier = 'UA'
        ) AS late
        ON known.time_hour = late.time_hour AND known.carrier = late.carrier AND known.flight = late.flight
        WHEN MATCHED THEN UPDATE SET arr_delay = late.arr_delay + 1, air_time = late.air_time - 1
        WHEN NOT MATCHED THEN INSERT *""",
    ),
    (
        "snow at LGA: flights move to another airport, and so to another partition",
        """UPDATE lake.demo.flights SET origin = 'EWR'
        WHERE origin = 'LGA' AND month = 2 AND day BETWEEN 8 AND 9 AND carrier IN ('UA', 'AA')""",
    ),
    (
        "the first flights of the new year are appended",
        """INSERT INTO lake.demo.flights
        SELECT 2014 AS year, 1 AS month, 2 AS day, dep_time, sched_dep_time, dep_delay, arr_time, sched_arr_time,
            arr_delay, carrier, flight, tailnum, origin, dest, air_time, distance, hour, minute,
            time_hour + INTERVAL 365 DAYS AS time_hour
        FROM lake.demo.flights WHERE year = 2013 AND month = 1 AND day = 2""",
    ),
    (
        "maintenance compacts the files",
        """CALL lake.system.rewrite_data_files(
            table => 'demo.flights', options => map('rewrite-all', 'true'))""",
    ),
    (
        "the Airbus A330s are refitted",
        "UPDATE lake.demo.planes SET seats = seats + 2 WHERE model LIKE 'A330-%'",
    ),
    (
        "the weather of another morning comes in",
        """INSERT INTO lake.demo.weather
        SELECT origin, 2014 AS year, 1 AS month, 1 AS day, hour, temp, dewp, humid, wind_dir, wind_speed, wind_gust,
            precip, pressure, visib, time_hour + INTERVAL 365 DAYS AS time_hour
        FROM lake.demo.weather WHERE month = 1 AND day = 1 AND hour BETWEEN 6 AND 12""",
    ),
    (
        "airports without a time zone are dropped",
        "DELETE FROM lake.demo.airports WHERE tzone IS NULL",
    ),
    (
        "an airline gets another name",
        "UPDATE lake.demo.airlines SET name = 'Hawaiian Airlines (Alaska Air Group)' WHERE carrier = 'HA'",
    ),
)


def create_tables(spark: SparkSession, data: Path) -> None:
    """Create the tables, copy-on-write in format version 2, and fill them from the Parquet files."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    for table in TABLES:
        rows = spark.read.parquet(str(data / f"{table.name}.parquet"))
        columns = ", ".join(
            f"{quoted(column.name)} {column.dataType.simpleString()}"
            + (" NOT NULL" if column.name in table.identifier_columns else "")
            for column in rows.schema.fields
        )
        partitions = f"PARTITIONED BY ({table.partitioned_by})" if table.partitioned_by else ""
        spark.sql(f"DROP TABLE IF EXISTS {table.full_name}")
        spark.sql(
            f"CREATE TABLE {table.full_name} ({columns}) USING iceberg {partitions} TBLPROPERTIES ("
            "'format-version' = '2', 'write.delete.mode' = 'copy-on-write', "
            "'write.update.mode' = 'copy-on-write', 'write.merge.mode' = 'copy-on-write')"
        )
        rows.writeTo(table.full_name).option("check-nullability", "false").append()
        identifiers = ", ".join(quoted(name) for name in table.identifier_columns)
        spark.sql(f"ALTER TABLE {table.full_name} SET IDENTIFIER FIELDS {identifiers}")
