"""Drivers killed at points drawn by a seed, over kinds of tables and jobs: the next run ends with index == table.

A few kills by default; `make test SUITE=faults` asks for more with ICECDC_FAULTS, and for others with ICECDC_SEED.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.errors import IcecdcError
from tests.faults.killing import JOBS, KILLS, SEED, KillPoint, Victim, of_one_core, rows_as_documents

_MERGE_ON_READ = "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read'"
KINDS = {
    "v2 copy-on-write": "USING iceberg TBLPROPERTIES ('format-version' = '2')",
    "v2 merge-on-read": f"USING iceberg TBLPROPERTIES ('format-version' = '2', {_MERGE_ON_READ})",
    "v3 merge-on-read": f"USING iceberg TBLPROPERTIES ('format-version' = '3', {_MERGE_ON_READ})",
    "v2 partitioned": "USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '2')",
    "v1 copy-on-write": "USING iceberg TBLPROPERTIES ('format-version' = '1')",
}


def change(spark, table, rng):
    """One to three commits of any kind."""
    for _ in range(rng.randint(1, 3)):
        kind, modulus, rest = rng.randint(0, 3), rng.randint(3, 9), rng.randint(0, 2)
        start = rng.randint(100, 100_000)
        statement = {
            0: f"UPDATE {table} SET name = 'u{start}' WHERE id % {modulus} = {rest}",
            1: f"DELETE FROM {table} WHERE id % {modulus + 9} = {rest}",
            2: f"MERGE INTO {table} t USING (SELECT id + {start} AS id FROM range({modulus})) s ON t.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET name = 'm' WHEN NOT MATCHED THEN INSERT (id, name, part) "
            f"VALUES (s.id, 'm{start}', s.id % 3)",
            3: f"UPDATE {table} SET part = (part + 1) % 3 WHERE id % {modulus} = {rest}",
        }[kind]
        spark.sql(statement)


@pytest.mark.slow
class DescribeKilledDrivers:
    def it_ends_equal_after_every_kill(self, spark, make_config, indexed, opensearch, name, opensearch_url):
        rng = random.Random(SEED)
        configs, outcomes, victim = {}, [], None
        try:
            for trial in range(KILLS):
                kind = list(KINDS)[trial % len(KINDS)]
                if kind not in configs:
                    configs[kind] = self.prepared(spark, make_config, f"{name}_{trial}", KINDS[kind])
                config = configs[kind]
                victim = victim or Victim(of_one_core(config))
                job, kill_point = rng.choice(JOBS), KillPoint.drawn(rng)
                change(spark, config.table, rng)
                if job == "validate":
                    # The killed run is a repair, so it gets a document to remove.
                    sync_changes(spark, config)
                    opensearch.index(index=config.index, id=f"foreign{trial}", body={"id": -1})
                given = {"table": config.table, "index": config.index, "positions_index": config.positions_index}
                given |= {"repair": True} if job == "validate" else {}
                where = victim.run(job, {**given, "export_group_bytes": 1}, kill_point, opensearch_url)
                victim = Victim(of_one_core(config)) if trial + 1 < KILLS else None
                if rng.random() < 0.5:
                    change(spark, config.table, rng)
                equal, summary = self.synced_again(spark, config, indexed, validating=job == "validate")
                known = {"kind": kind, "job": job, "kill_point": kill_point, "where": where, "summary": summary}
                outcomes.append({"equal": equal, **known})
        finally:
            if victim:
                victim.kill()
            for config in configs.values():
                spark.sql(f"DROP TABLE IF EXISTS {config.table}")
        print(f"seed {SEED}: {Counter((each['where'], each['equal']) for each in outcomes)}")
        assert [each for each in outcomes if not each["equal"]] == []

    def prepared(self, spark, make_config, name, kind):
        config = make_config(table=f"lake.ns.{name}", index=name, positions_index=f"positions-{name}")
        spark.sql(f"CREATE TABLE {config.table} (id BIGINT, name STRING, part BIGINT) {kind}")
        for number in range(3):
            rows = f"SELECT id + {number * 20}, concat('n', id), id % 3 FROM range(20)"
            spark.sql(f"INSERT INTO {config.table} {rows}")
        export_table(spark, config)
        return config

    def synced_again(self, spark, config, indexed, validating):
        """What the next run of a schedule does; a validation that was killed is run again."""
        try:
            report = sync_changes(spark, config)
            if validating:
                validate_table(spark, config.replace(repair=True))
        except IcecdcError as error:
            return False, str(error)
        equal = indexed(config.index) == rows_as_documents(spark, config.table)
        return equal, f"{report.strategy}: {report.upserts} + {report.deletes}, {report.already_applied} again"
