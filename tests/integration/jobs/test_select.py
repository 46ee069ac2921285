"""Documents made by expressions: every job sees the same ones, and what they mask is nowhere."""

import json

import pytest
from pyspark.sql import functions as F

from icecdc_core import export_table, replay_dead_letters, sync_changes, validate_table
from icecdc_core.errors import ConfigError, IcecdcError, SparkJobError
from icecdc_core.jobs.setup import check_setup
from icecdc_core.reporting.reports import report_json

OWNER, PLACE = "sha2(email, 256) AS owner", "named_struct('lat', lat, 'lon', lon) AS place"
SELECT = ["* EXCEPT (id, email, lat, lon, other)", OWNER, PLACE]
SECRET = "planted-secret"
MADE = (
    "CREATE TABLE {t} (id BIGINT NOT NULL, email STRING, name STRING, lat DOUBLE, lon DOUBLE, other INT) USING iceberg",
    f"INSERT INTO {{t}} SELECT id, concat('{SECRET}', id), concat('n', id), id, id, 0 FROM range(20)",
)


class DescribeADocumentOfExpressions:
    def it_is_what_they_make_of_the_row_in_every_job(self, spark, sql, make_config, opensearch, indexed):
        sql(*MADE)
        config = make_config(select=SELECT)
        assert export_table(spark, config).upserts == 20
        sql("UPDATE {t} SET email = concat(email, '!'), lat = 99 WHERE id = 3", "DELETE FROM {t} WHERE id = 4")
        sql("INSERT INTO {t} VALUES (100, 'x', 'n100', 1, 2, 0)")
        report = sync_changes(spark, config)
        assert (report.upserts, report.deletes) == (2, 1)
        expected = spark.range(1).select(F.sha2(F.lit(f"{SECRET}3!"), 256)).collect()[0][0]
        place = {"lat": 99.0, "lon": 3.0}
        documents = indexed()
        assert documents["3"] == {"name": "n3", "owner": expected, "place": place}
        assert (len(documents), "4" in documents) == (20, False)
        sql("UPDATE {t} SET other = other + 1")  # no expression uses it
        assert sync_changes(spark, config).upserts == 0
        # It is repaired. All other documents are right.
        (physical,) = opensearch.indices.get_alias(name=config.index)
        opensearch.delete(index=physical, id="6", refresh=True)
        opensearch.index(index=physical, id="7", body={"name": "wrong"}, refresh=True)
        report = validate_table(spark, config.replace(repair=True))
        assert (report.ok, report.repaired) == (True, 2)

    def it_needs_no_identifier_columns_for_appends(self, spark, sql, new_index, indexed):
        partition = "ALTER TABLE {t} ADD PARTITION FIELD email"  # its values are in the paths of files
        config = new_index(*MADE, partition, select=SELECT, identifier_columns=[])
        sql(f"INSERT INTO {{t}} VALUES (1, '{SECRET}x', 'twice', 1, 2, 0)")
        assert sync_changes(spark, config).upserts == 1
        assert validate_table(spark, config).ok
        found = indexed()
        assert {len(identity) for identity in found} == {64}
        assert (len(found), SECRET in json.dumps(found)) == (21, False)

    @pytest.mark.parametrize(
        ("version", "chosen"),
        [
            ("2", {"select": ["name", "_change_type AS kind"], "row_filter": "_change_type = 'new'"}),
            ("3", {"columns": ["id", "name"]}),
        ],
        ids=["select", "columns"],
    )
    def it_may_use_a_name_of_change_columns(self, spark, sql, new_index, indexed, monkeypatch, version, chosen):
        monkeypatch.setattr("icecdc_core.changes.net_changes.ROW_IDS_FROM_ROWS", 0)
        properties = f"TBLPROPERTIES ('format-version' = '{version}')"
        config = new_index(
            f"CREATE TABLE {{t}} (id BIGINT NOT NULL, name STRING, _change_type STRING) USING iceberg {properties}",
            "INSERT INTO {t} SELECT id, concat('n', id), 'new' FROM range(4)",
            **chosen,
        )
        sql("UPDATE {t} SET name = 'other' WHERE id = 1")
        assert sync_changes(spark, config).upserts == 1
        expected = {"name": "other", "kind": "new"} if "select" in chosen else {"id": 1, "name": "other"}
        assert indexed()["1"] == expected
        assert validate_table(spark, config).ok


class DescribeAMaskedValue:
    def it_is_in_no_index_report_dead_letter_log_or_error(self, spark, sql, make_config, opensearch, tmp_path, name):
        sql(*MADE, "ALTER TABLE {t} ADD PARTITION FIELD email")
        dead_letters = f"lake.ns.dead_letters_{name}"
        log, report = tmp_path / "log.jsonl", tmp_path / "report.json"
        config = make_config(
            select=["* EXCEPT (id, email)", "sha2(email, 256) AS owner", "try_cast(lat AS float) AS lat2"],
            max_rejected_documents=3,
            dead_letter_table=dead_letters,
            log_path=str(log),
            report_path=str(report),
        )
        reports = [job(spark, config) for job in (export_table, check_setup)]
        sql("UPDATE {t} SET lat = double('NaN') WHERE id = 5")
        reports += [job(spark, config) for job in (sync_changes, replay_dead_letters, validate_table)]
        assert spark.table(dead_letters).count() == 1
        fails = config.replace(select=["cast(email AS int) AS number"], on_schema_change="reexport")
        with pytest.raises(ConfigError, match="CAST_INVALID_INPUT") as failed:
            sync_changes(spark, fails)
        assert failed.value.__suppress_context__
        (physical,) = opensearch.indices.get_alias(name=config.index)
        found = {
            "index": json.dumps(opensearch.search(index=physical, body={"size": 100})),
            "dead letters": str(spark.table(dead_letters).collect()),
            "log": log.read_text(),
            "error": str(failed.value),
            "positions": json.dumps(opensearch.search(index=config.positions_index, body={"size": 1000})),
            "reports": "".join(f"{each}{each.text()}{report_json(each)}" for each in reports),
            "report of the failure": report.read_text(),
        }
        spark.sql(f"DROP TABLE {dead_letters}")
        assert [where for where, text in found.items() if SECRET in text] == []

    def it_is_in_no_error_of_a_failing_expression(self, spark, sql, make_config, tmp_path):
        sql(*MADE)
        log = tmp_path / "log.jsonl"
        for expression in (
            "cast(concat(email, '\\n', email) AS int)",
            "map(email, 1, concat(email, ''), 2)",
            "element_at(map(email, 1), raise_error(concat('a\\n', email)))",
            "format_string(concat('%', email), 1)",
            "xpath_int(concat('<', email), 'a')",
            "regexp_like(name, concat('(', email))",
            "array(lat)[cast(substr(email, 15) AS int) + 5]",
            "date_format(date '2026-01-31', email)",
        ):
            with pytest.raises(IcecdcError) as failed:
                export_table(spark, make_config(select=[f"{expression} AS x"], log_path=str(log)))
            assert SECRET not in f"{failed.value}{failed.value.value}{log.read_text()}"
            assert isinstance(failed.value, (ConfigError, SparkJobError)), expression
        # It is noted when the ids of documents show it.
        for select, hidden in (
            (["* EXCEPT (email)", "sha2(email, 256) AS owner"], True),
            (["upper(email) AS mail"], True),
            (["cast(email AS string) AS mail"], False),
        ):
            found = check_setup(spark, make_config(select=select, identifier_columns=["email"]))
            assert (found.ok, any("values of 'email'" in note for note in found.notes)) == (True, hidden), select
