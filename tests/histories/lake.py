"""A small table of any kind and everything that can happen to it, with its truth read by others."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession, functions as F

from tests.given.equality_deletes import upsert

REGIONS = ("north", "south", "west")


@dataclass(frozen=True)
class Kind:
    name: str
    version: int
    mode: str = "copy-on-write"
    file: str = "parquet"
    equality: bool = False
    switching: bool = False
    granularity: str = "file"


KINDS = (
    Kind("v1 copy-on-write", 1),
    Kind("v2 copy-on-write", 2),
    Kind("v2 copy-on-write, Avro", 2, file="avro"),
    Kind("v2 merge-on-read", 2, "merge-on-read"),
    Kind("v2 merge-on-read, ORC, deletes by partition", 2, "merge-on-read", "orc", granularity="partition"),
    Kind("v2 equality deletes", 2, "merge-on-read", equality=True),
    Kind("v2 switching modes", 2, switching=True),
    Kind("v3 copy-on-write", 3),
    Kind("v3 deletion vectors", 3, "merge-on-read"),
    Kind("v3 equality deletes, ORC", 3, "merge-on-read", "orc", equality=True),
)
SAMPLE = ("v2 copy-on-write", "v2 equality deletes", "v3 deletion vectors")
"""The kinds that share what every run of the tests goes through; SUITE=histories goes through it on all kinds."""


class Lake:
    """One table: created, changed and maintained by statements that a user would give.

    Every change takes a number ``n`` that says which rows it hits, so that a history can be repeated.
    """

    def __init__(self, spark: SparkSession, warehouse: Path, name: str, kind: Kind) -> None:
        self.spark, self.warehouse, self.name, self.kind = spark, warehouse, name, kind
        self.table = f"lake.ns.{name}"
        self._next_id, self._statements, self._columns, self._version = 0, 0, 0, kind.version
        self._evolved = False
        self.create()

    def sql(self, statement: str) -> Any:
        return self.spark.sql(statement.replace("{t}", self.table).replace("{n}", f"ns.{self.name}"))

    def create(self, how: str = "CREATE TABLE") -> None:
        kind = self.kind
        properties = {
            "format-version": self._version,
            "write.format.default": kind.file,
            "write.delete.granularity": kind.granularity,
            **{f"write.{operation}.mode": kind.mode for operation in ("delete", "update", "merge")},
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        by = "" if kind.equality else "PARTITIONED BY (region)"
        columns = "(id INT, name STRING, amount DOUBLE, region STRING)"
        self.sql(f"{how} {{t}} {columns} USING iceberg {by} TBLPROPERTIES ({listed})")

    def drop(self) -> None:
        # Without PURGE, which looks for the files with Spark's jobs.
        self.sql("DROP TABLE IF EXISTS {t}")

    def snapshots(self) -> list[int]:
        """The current snapshot and its ancestors that are still known, oldest first."""
        rows = self.sql("SELECT snapshot_id FROM {t}.history WHERE is_current_ancestor ORDER BY made_current_at")
        return list(dict.fromkeys(row[0] for row in rows.collect()))

    def rows(self) -> dict[str, dict[str, Any]]:
        """What the index has to hold, made from a plain SELECT."""
        return {str(row["id"]): row.asDict() for row in self.sql("SELECT * FROM {t}").collect()}

    def state(self, snapshot_id: int | None) -> Counter[tuple[Any, ...]]:
        """The rows of a snapshot under the table's current columns, read in full by PyIceberg.

        PyIceberg reads neither equality deletes nor Avro data files; there Spark's time travel is asked.
        """
        if snapshot_id is None:
            return Counter()
        place = str(self.warehouse)
        catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{place}/catalog.db", warehouse=place)
        table = catalog.load_table(f"ns.{self.name}")
        then = table.snapshot_by_id(snapshot_id)
        schema = table.schemas()[then.schema_id]
        if self.kind.equality or self.kind.file == "avro":
            rows = [row.asDict() for row in self.sql(f"SELECT * FROM {{t}} VERSION AS OF {snapshot_id}").collect()]
        else:
            rows = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        names = {field.field_id: field.name for field in schema.fields}
        wanted = [names.get(field.field_id) for field in table.schema().fields]
        return Counter(tuple(row[name] if name else None for name in wanted) for row in rows)

    # What users do to rows

    def append(self, n: int) -> None:
        first, self._next_id = self._next_id, self._next_id + 3 + n % 5
        own = ["id", "name", "amount", "region"]
        names = own + [name for name in self.spark.table(self.table).columns if name not in own]
        nulls = ", NULL" * (len(names) - len(own))  # Spark 4.0 wants a value of each column
        rows = ", ".join(f"({i}, 'row {i}', {i / 2}, '{REGIONS[i % 3]}'{nulls})" for i in range(first, self._next_id))
        columns = ", ".join(f"`{name}`" for name in names)
        self.sql(f"INSERT INTO {{t}} ({columns}) SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")

    def update(self, n: int) -> None:
        self.dml(f"UPDATE {{t}} SET amount = amount + 1, name = concat(name, '!') WHERE id % 4 = {n % 4}")

    def swap(self, n: int) -> None:
        low, high = n % 7, n % 7 + 1
        self.dml(
            f"UPDATE {{t}} SET id = CASE id WHEN {low} THEN {high} ELSE {low} END WHERE id IN ({low}, {high})"
            f" AND (SELECT count(*) FROM {{t}} WHERE id IN ({low}, {high})) = 2"
        )

    def delete(self, n: int) -> None:
        self.dml(f"DELETE FROM {{t}} WHERE id % 6 = {n % 6}")

    def delete_and_insert_again(self, n: int) -> None:
        kept = self.sql(f"SELECT * FROM {{t}} WHERE id % 6 = {n % 6}").localCheckpoint()
        self.delete(n)
        if kept.count():
            kept.coalesce(1).writeTo(self.table).append()

    def insert_and_delete(self, n: int) -> None:
        first = self._next_id
        self.append(n)
        self.dml(f"DELETE FROM {{t}} WHERE id >= {first} AND id % 2 = {n % 2}")

    def merge(self, n: int) -> None:
        new, self._next_id = self._next_id, self._next_id + 1
        columns, values = "id, name, amount, region", f"{new}, 'merged in', 0.5, '{REGIONS[n % 3]}'"
        self.dml(
            f"""MERGE INTO {{t}} t USING (SELECT explode(sequence(0, {new})) AS id) s ON t.id = s.id
            WHEN MATCHED AND t.id % 7 = {n % 7} THEN DELETE
            WHEN MATCHED AND t.id % 5 = {n % 5} THEN UPDATE SET name = 'merged'
            WHEN NOT MATCHED AND s.id = {new} THEN INSERT ({columns}) VALUES ({values})"""
        )

    def overwrite_static(self, n: int) -> None:
        rows = self.sql(f"SELECT * FROM {{t}} WHERE id % 3 <> {n % 3}").localCheckpoint()
        rows.writeTo(self.table).overwrite(F.lit(True))

    def overwrite_dynamic(self, n: int) -> None:
        if self._evolved:
            # Only partitions of the current spec are replaced; rows in files of an older one would be there twice.
            self.compact(n)
        kept = f"SELECT * FROM {{t}} WHERE region = '{REGIONS[n % 3]}' AND id % 2 = {n % 2}"
        self.sql(kept).localCheckpoint().writeTo(self.table).overwritePartitions()

    def upsert(self, n: int) -> None:
        """As a stream does it; on a table that is not written so, a MERGE."""
        if not self.kind.equality:
            return self.merge(n)
        ids = {n % 11, n % 4, self._next_id}
        rows = [{"id": i, "name": f"upserted {n}", "amount": n / 4, "region": REGIONS[n % 3]} for i in ids]
        self._next_id = max(ids) + 1
        return upsert(self.spark, self.table, "id", rows)

    # What happens to identifiers

    def repeat_identifiers(self, n: int) -> None:
        rows = self.sql(f"SELECT * FROM {{t}} WHERE id % 5 = {n % 5}")
        rows = rows if n % 2 else rows.withColumn("name", F.lit(f"again {n}"))  # a duplicate, equal or not
        if rows.localCheckpoint().count():
            rows.coalesce(1).writeTo(self.table).append()

    def mend_identifiers(self, n: int) -> None:
        """Of several rows of an identifier, keep the first or the last by name; of equal ones, keep one."""
        distinct = self.sql("SELECT DISTINCT * FROM {t}").localCheckpoint()
        if distinct.count() < self.spark.table(self.table).count():
            distinct.writeTo(self.table).overwrite(F.lit(True))
        kept = ("min", "max")[n % 2]
        of_id = "SELECT id, count(*) AS times, {kept}(name) AS name FROM {t} GROUP BY id".replace("{kept}", kept)
        repeated = self.sql(f"SELECT * FROM ({of_id}) WHERE times > 1").collect()
        for row in repeated:
            self.dml(f"DELETE FROM {{t}} WHERE id = {row['id']} AND name <> '{row['name']}'")

    def is_unique(self) -> bool:
        return bool(self.sql("SELECT count(*) = count(DISTINCT id) FROM {t}").first()[0])

    # What happens to histories

    def compact(self, n: int) -> None:
        self.sql("CALL lake.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))")

    def rewrite_deletes(self, n: int) -> None:
        if self.kind.version > 1:
            options = "map('rewrite-all', 'true')"
            self.sql(f"CALL lake.system.rewrite_position_delete_files(table => '{{n}}', options => {options})")

    def roll_back(self, n: int) -> None:
        known = self.snapshots()
        if len(known) > 1:
            self.sql(f"CALL lake.system.rollback_to_snapshot('{{n}}', {known[-2 - n % min(3, len(known) - 1)]})")

    def set_current(self, n: int) -> None:
        """Go to any snapshot there is, of this line or of one that was left."""
        known = [row[0] for row in self.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at").collect()]
        if known:
            self.sql(f"CALL lake.system.set_current_snapshot('{{n}}', {known[n % len(known)]})")

    def write_audit_publish(self, n: int) -> None:
        """Stage an append, commit another, then cherry-pick the first."""
        self.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
        staged = f"staged-{self.name}-{self._statements}"
        self._statements += 1
        self.spark.conf.set("spark.wap.id", staged)
        try:
            self.append(n)
        finally:
            self.spark.conf.unset("spark.wap.id")
        self.append(n + 1)
        rows = self.sql(f"SELECT snapshot_id FROM {{t}}.snapshots WHERE summary['wap.id'] = '{staged}'").collect()
        self.sql(f"CALL lake.system.cherrypick_snapshot('{{n}}', {rows[0][0]})")

    def branch(self, n: int) -> None:
        """Write on a branch, then fast-forward to it; a tag is left behind."""
        if not self.snapshots():
            return
        name = f"b{self._statements}"
        self._statements += 1
        self.sql(f"ALTER TABLE {{t}} CREATE BRANCH {name}")
        self.sql(f"ALTER TABLE {{t}} CREATE TAG tag_{name}")
        self.dml(f"UPDATE {{t}}.branch_{name} SET name = 'on a branch' WHERE id % 4 = {n % 4}")
        self.sql(f"CALL lake.system.fast_forward('{{n}}', 'main', '{name}')")

    def evolve_partitions(self, n: int) -> None:
        bucketed = any("bucket" in row[0] for row in self.sql("DESCRIBE {t}").select("data_type").collect())
        self.sql(f"ALTER TABLE {{t}} {'DROP' if bucketed else 'ADD'} PARTITION FIELD bucket(2, id)")
        self._evolved = True

    def add_column(self, n: int) -> None:
        self.sql(f"ALTER TABLE {{t}} ADD COLUMN extra_{self._columns} INT")
        self._columns += 1

    def upgrade(self, n: int) -> None:
        if self._version < 3:
            self._version += 1
            self.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version' = '{self._version}')")

    def expire(self, n: int) -> None:
        """Expire everything but the current snapshot; the data files only older ones have are removed."""
        future = "TIMESTAMP '2100-01-01 00:00:00'"
        self.sql(f"CALL lake.system.expire_snapshots(table => '{{n}}', older_than => {future}, retain_last => 1)")

    def replace(self, n: int) -> None:
        self.create("CREATE OR REPLACE TABLE")
        self.append(n)

    def drop_and_create(self, n: int) -> None:
        self.sql("DROP TABLE {t} PURGE")
        self.create()
        self.append(n)

    def dml(self, statement: str) -> None:
        self._statements += 1
        if self.kind.switching:
            mode = ("merge-on-read", "copy-on-write")[self._statements % 2]
            modes = ", ".join(f"'write.{operation}.mode' = '{mode}'" for operation in ("delete", "update", "merge"))
            self.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({modes})")
        self.sql(statement)


Change = Callable[[Lake, int], None]

OPERATIONS: dict[str, Change] = {
    "append": Lake.append,
    "UPDATE": Lake.update,
    "UPDATE that changes nothing": lambda lake, n: lake.dml(f"UPDATE {{t}} SET name = name WHERE id % 4 = {n % 4}"),
    "UPDATE of the partition column": lambda lake, n: lake.dml(
        f"UPDATE {{t}} SET region = '{REGIONS[n % 3]}' WHERE id % 5 = {n % 5}"
    ),
    "UPDATE that swaps identifiers": Lake.swap,
    "DELETE": Lake.delete,
    "DELETE of a partition": lambda lake, n: lake.dml(f"DELETE FROM {{t}} WHERE region = '{REGIONS[n % 3]}'"),
    "delete, then insert again": Lake.delete_and_insert_again,
    "insert, then delete": Lake.insert_and_delete,
    "MERGE": Lake.merge,
    "upsert": Lake.upsert,
    "INSERT OVERWRITE, static": Lake.overwrite_static,
    "INSERT OVERWRITE, dynamic": Lake.overwrite_dynamic,
    "TRUNCATE": lambda lake, _: lake.sql("TRUNCATE TABLE {t}"),
}
HISTORIES: dict[str, Change] = {
    "compaction": Lake.compact,
    "manifest rewrite": lambda lake, _: lake.sql("CALL lake.system.rewrite_manifests('{n}')"),
    "position delete rewrite": Lake.rewrite_deletes,
    "rollback": Lake.roll_back,
    "set_current_snapshot": Lake.set_current,
    "write-audit-publish and cherry-pick": Lake.write_audit_publish,
    "branch, tag and fast-forward": Lake.branch,
    "partition spec evolution": Lake.evolve_partitions,
    "CREATE OR REPLACE": Lake.replace,
    "added column": Lake.add_column,
    "format upgrade": Lake.upgrade,
    "snapshots expired": Lake.expire,
    "DROP and re-create": Lake.drop_and_create,
}
