"""An ingest into a branch: the main branch shows its rows once a person has moved it forward."""

import pytest

from icecdc_core.errors import ConfigError, TableResetError
from icecdc_core.ingest import ingest
from tests.given.kafka_records import people

CREATE = "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg"


def ids(spark, table, branch="main"):
    return sorted(row.id for row in spark.sql(f"SELECT id FROM {table} VERSION AS OF '{branch}'").collect())


class DescribeBranches:
    @pytest.mark.parametrize("given", [{}, {"mode": "upsert", "identifier_columns": "id"}], ids=str)
    def it_writes_each_record_once_there_and_goes_on_after_a_merge(self, spark, sql, make_ingest, topic, name, given):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (100, 'main')")
        config = make_ingest(branch="audit", max_records_per_batch=4, **given)
        topic.send(*people(0, 6), b"no json", partition=0)
        ingest(spark, config)
        topic.send(*people(6, 8), partition=0)
        assert ingest(spark, config).rows_written == 2
        assert (ids(spark, config.table), ids(spark, config.table, "audit")) == ([100], [*range(8), 100])
        spark.sql(f"CALL lake.system.fast_forward('ns.{name}', 'main', 'audit')")
        topic.send(*people(8, 9), partition=0)
        assert (ingest(spark, config).rows_written, ids(spark, config.table)) == (1, [*range(8), 100])
        assert ids(spark, config.table, "audit") == [*range(9), 100]

    def it_refuses_a_tag_and_a_branch_that_was_dropped_before_it_was_merged(self, spark, sql, make_ingest, topic):
        sql(CREATE, "INSERT INTO {t} VALUES (1, 'a')", "ALTER TABLE {t} CREATE TAG fixed")
        topic.send(*people(0, 3))
        with pytest.raises(ConfigError, match="This is a tag"):
            ingest(spark, make_ingest(branch="fixed"))
        config = make_ingest(branch="audit")
        ingest(spark, config)
        sql("ALTER TABLE {t} DROP BRANCH audit")
        topic.send(*people(3, 4))
        with pytest.raises(TableResetError, match="rolled back"):
            ingest(spark, config)
