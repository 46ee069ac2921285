"""The table that most tests of faults work on, the jobs that they run, and the seed of those that draw."""

import os
from typing import Any

from icecdc_core import export_table, rollback_index, sync_changes, validate_table

JOBS = {
    "export": export_table,
    "rollback": rollback_index,
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


_MERGE_ON_READ = "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read'"
KINDS = {
    "v2 copy-on-write": "USING iceberg TBLPROPERTIES ('format-version' = '2')",
    "v2 merge-on-read": f"USING iceberg TBLPROPERTIES ('format-version' = '2', {_MERGE_ON_READ})",
    "v3 merge-on-read": f"USING iceberg TBLPROPERTIES ('format-version' = '3', {_MERGE_ON_READ})",
    "v2 partitioned": "USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '2')",
    "v1 copy-on-write": "USING iceberg TBLPROPERTIES ('format-version' = '1')",
}


def change_some(spark: Any, table: str, rng: Any) -> str:
    """Change rows of a table with the columns id, name and part, as a seed draws it."""
    modulus, rest, start = rng.randint(3, 9), rng.randint(0, 2), rng.randint(100, 100_000)
    statements = (
        f"UPDATE {table} SET name = 'u{start}' WHERE id % {modulus} = {rest}",
        f"DELETE FROM {table} WHERE id % {modulus + 9} = {rest}",
        f"MERGE INTO {table} t USING (SELECT id + {start} AS id FROM range({modulus})) s ON t.id = s.id "
        f"WHEN MATCHED THEN UPDATE SET name = 'm' WHEN NOT MATCHED THEN INSERT (id, name, part) "
        f"VALUES (s.id, 'm{start}', s.id % 3)",
        f"UPDATE {table} SET part = (part + 1) % 3 WHERE id % {modulus} = {rest}",
    )
    statement: str = rng.choice(statements)
    spark.sql(statement)
    return statement


def rows_as_documents(spark: Any, table: str) -> dict[str, dict[str, Any]]:
    """The table as the index should be, by no code of icecdc; for columns that are JSON as they are."""
    return {str(row["id"]): row.asDict() for row in spark.table(table).collect()}
