"""`icecdc init`: the index file of a table that nobody described."""

import pytest
import yaml

from icecdc_core import SyncConfig, export_table
from icecdc_core.config.sync import InitConfig
from icecdc_core.errors import ConfigError, TableNotFoundError
from icecdc_core.jobs.init import write_index_file
from icecdc_core.jobs.setup import check_setup

ROWS = """
    SELECT id AS line, concat('o-', id div 2) AS order_no, CAST(id % 2 AS INT) AS position,
      array('red', 'blue')[id % 2] AS colour, concat('A long text about the item number ', id) AS description,
      concat('ann', id, '@example.com') AS email, '+43 1 5550' AS phone,
      '2026-01-31T12:00:00Z' AS delivered, 1760000000000L + id AS created_at, id / 3 AS price,
      DATE '9999-12-31' AS valid_to, array(id) AS tags
    FROM range(200)
"""


@pytest.fixture(scope="module")
def namespace(spark):
    spark.sql("CREATE NAMESPACE lake.unknown_shop")
    spark.sql(f"CREATE TABLE lake.unknown_shop.`Order Lines` USING iceberg AS SELECT * EXCEPT (line) FROM ({ROWS})")
    spark.sql("CREATE TABLE lake.unknown_shop.`order-lines` (`2024` INT) USING iceberg")
    spark.sql("CREATE TABLE lake.unknown_shop.logs (text STRING, payload BINARY) USING iceberg")
    spark.sql("INSERT INTO lake.unknown_shop.logs VALUES ('one', X'01'), ('one', X'01')")
    yield "lake.unknown_shop"
    for table in ("`Order Lines`", "`order-lines`", "logs"):
        spark.sql(f"DROP TABLE lake.unknown_shop.{table}")
    spark.sql("DROP NAMESPACE lake.unknown_shop")


class DescribeWriteIndexFile:
    def it_writes_what_setup_accepts(self, spark, namespace, opensearch, opensearch_url, warehouse, tmp_path):
        output = tmp_path / "my indexes.yml"
        shared = {"opensearch_url": opensearch_url, "warehouse": str(warehouse)}
        report = write_index_file(spark, InitConfig(table=namespace, output=str(output), **shared))
        assert (report.indexes, report.skipped) == (["order-lines", "logs", "order-lines-2"], [])

        content = yaml.safe_load(output.read_text())
        lines, logs = content["indexes"]["order-lines"], content["indexes"]["logs"]
        assert content["defaults"] == shared
        assert lines["identifier_columns"] == ["order_no", "position"]
        keywords = dict.fromkeys(("order_no", "colour", "email", "phone", "delivered"), "keyword")
        assert {name: field["type"] for name, field in lines["mapping"].items()} == keywords
        assert "personal: email, phone." in output.read_text()
        assert f"icecdc setup --file '{output}'\n" in output.read_text()
        assert "identifier_columns" not in logs
        schema = output.read_text().partition("$schema=")[2].partition("\n")[0]
        assert (tmp_path / schema).is_file()

        configs = SyncConfig.load_all(output, positions_index="positions-of-init")
        assert [check_setup(spark, config).problems for config in configs.values()] == [[], [], []]
        config = configs["order-lines"]
        assert export_table(spark, config).upserts == 200
        opensearch.indices.delete(index=f"{config.index}-*,positions-of-init", params={"expand_wildcards": "all"})

    def it_writes_no_secret_overwrites_no_file_and_names_what_is_missing(self, spark, namespace, warehouse, tmp_path):
        output = tmp_path / "indexes.yml"
        properties = {"type": "jdbc", "uri": "jdbc:sqlite:x.db", "jdbc.password": "pa55word"}
        config = InitConfig(table=f"{namespace}.logs", output=str(output), catalog_properties=properties)
        write_index_file(spark, config)
        assert "pa55word" not in output.read_text()
        written = yaml.safe_load(output.read_text())["defaults"]["catalog_properties"]
        assert written["jdbc.password"] == "env:JDBC_PASSWORD"
        with pytest.raises(ConfigError, match="exists already"):
            InitConfig(table=namespace, output=str(output))
        for table in ("lake.unknown_shop.missing", "lake.unknown"):
            with pytest.raises(TableNotFoundError, match="no such table or namespace"):
                write_index_file(spark, InitConfig(table=table, output=str(tmp_path / "other.yml")))
