"""The whole way of a table through one catalog: create, export, change, sync, validate, by the public API alone.

Usage in a process of its own, where the classpath must be another one: python catalog_journey.py < JSON, a list of
objects with `journey` (a function of this module) and `parameters` (of SyncConfig); prints the results as JSON.
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core import SyncConfig, export_table, get_spark, sync_changes, validate_table
from icecdc_core.errors import IcecdcError
from icecdc_core.runs.cluster_status import cluster_status

STATES = ["ok", "behind", "ok"]
EXPECTED = {"exported": 3, "upserts": 2, "deletes": 1, "ok": True, "source_rows": 3, "states": STATES}
"""What `whole_way` gives for every catalog that shows its history."""


def whole_way(config: SyncConfig, version: int = 2) -> dict[str, Any]:
    """Export three rows; update one, delete one and insert one in three snapshots; sync, validate."""
    spark = create(config, version)
    exported, states = export_table(spark, config), [cluster_status(config, config.index).state]
    change(spark, config)
    states.append(cluster_status(config, config.index).state)
    synced = sync_changes(spark, config)
    states.append(cluster_status(config, config.index).state)
    validated = validate_table(spark, config)
    return {
        "exported": exported.upserts,
        "upserts": synced.upserts,
        "deletes": synced.deletes,
        "ok": validated.ok,
        "source_rows": validated.source_rows,
        "states": states,
    }


def whole_way_v3(config: SyncConfig) -> dict[str, Any]:
    return whole_way(config, version=3)


def create(config: SyncConfig, version: int = 2) -> SparkSession:
    spark = get_spark(config)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {config.table.rpartition('.')[0]}")
    spark.sql(
        f"CREATE TABLE {config.table} (id BIGINT, name STRING) USING iceberg "
        f"TBLPROPERTIES ('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.sql(f"INSERT INTO {config.table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return spark


def change(spark: SparkSession, config: SyncConfig) -> None:
    spark.sql(f"UPDATE {config.table} SET name = 'x' WHERE id = 1")
    spark.sql(f"DELETE FROM {config.table} WHERE id = 2")
    spark.sql(f"INSERT INTO {config.table} VALUES (4, 'd')")


def export_only(config: SyncConfig) -> dict[str, Any]:
    return {"exported": export_table(get_spark(config), config).upserts}


def main() -> None:
    results = []
    for asked in json.load(sys.stdin):
        try:
            results.append(globals()[asked["journey"]](SyncConfig(**asked["parameters"])))
        except IcecdcError as error:
            results.append({"error": type(error).__name__, "text": str(error)})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
