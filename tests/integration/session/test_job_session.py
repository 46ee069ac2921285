"""Jobs work in a session of their own: what the caller's session has set changes no document."""

import pytest
from pyspark.sql import SparkSession

from icecdc_core import sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import ConfigError
from icecdc_core.session.job_session import job_session

SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.adaptive.enabled": "false",
}
SELECT = [
    "id",
    "coalesce(size(tags), 99) AS tags",
    "cast(price * price AS STRING) AS squared",
    "cast(struct(id, tags) AS STRING) AS row",
    "hour(seen) AS `hour`",
    "'${env:HOME}' AS home",
]


class DescribeTheSessionOfTheCaller:
    def it_changes_no_document(self, spark, sql, new_index, opensearch, indexed):
        create = "CREATE TABLE {t} (id INT, tags ARRAY<INT>, price DECIMAL(38, 10), seen TIMESTAMP) USING iceberg"
        fill = "INSERT INTO {t} SELECT id, null, 1.5, timestamp '2026-01-31T11:30:00Z' FROM range(1, 4)"
        config = new_index(create, fill, select=SELECT, row_filter="hour(seen) < 12")
        exported = indexed()
        caller = spark.newSession()
        for name, value in SETTINGS.items():
            caller.conf.set(name, value)
        caller.udf.register("mine", lambda value: True, "boolean")
        caller.createDataFrame([(1,)], "id int").createOrReplaceTempView("mine")
        sql("UPDATE {t} SET price = 1.50 WHERE id < 3", "DELETE FROM {t} WHERE id = 3")
        report = sync_changes(caller, config)
        assert (report.deletes, SparkSession.getActiveSession()) == (1, caller)
        del exported["3"]
        assert indexed() == exported
        assert exported["1"]["hour"] == 11
        assert exported["1"]["home"] == "${env:HOME}"
        assert validate_table(caller, config).ok
        assert "time_zone" not in PositionStore(opensearch, config).read().selection
        for changed in ({"row_filter": "mine(id)"}, {"select": ["id", "mine(id) AS x"]}):
            with pytest.raises(ConfigError, match="mine"):
                sync_changes(caller, config.replace(**changed))
        assert {name: caller.conf.get(name) for name in SETTINGS} == SETTINGS

    def it_gives_its_catalogs_and_how_spark_executes(self, spark):
        caller = spark.newSession()
        given = {"spark.sql.catalog.later": "x.Y", "spark.sql.shuffle.partitions": "5", "fs.azure.account.key": "k"}
        for name, value in given.items():
            caller.conf.set(name, value)
        with job_session(caller) as own, job_session(own) as inner, job_session(caller) as again:
            assert (inner, again) == (own, own)
            assert {name: own.conf.get(name) for name in given} == given
        caller.conf.set("spark.sql.catalog.later.type", "hadoop")
        with job_session(caller) as other:
            assert other.conf.get("spark.sql.catalog.later.type") == "hadoop"
