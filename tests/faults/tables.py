"""The table that most tests of faults work on, the jobs that they run, and the seed of those that draw."""

import os
from typing import Any

from icecdc_core import export_table, sync_changes, validate_table

JOBS = {
    "export": export_table,
    "sync": sync_changes,
    "repair": lambda spark, config: validate_table(spark, config.replace(repair=True)),
}
SEED = int(os.environ.get("ICECDC_SEED", "20261121"))
CREATE = "CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"
FILL = "INSERT INTO {t} SELECT id, concat('n', id) FROM range(60)"


def change(sql: Any) -> None:
    sql(
        "MERGE INTO {t} t USING (SELECT id * 3 AS id FROM range(30)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'changed' "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'new')"
    )


def rows_as_documents(spark: Any, table: str) -> dict[str, dict[str, Any]]:
    """The table as the index should be, by no code of icecdc; for columns that are JSON as they are."""
    return {str(row["id"]): row.asDict() for row in spark.table(table).collect()}
