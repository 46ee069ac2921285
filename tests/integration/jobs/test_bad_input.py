"""Bad input, one by one: a typed error before any write, naming the parameter, its value and the remedy."""

import json
from contextlib import contextmanager

import pytest

from icecdc_core import export_table, get_spark, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import (
    CatalogError,
    ColumnNotFoundError,
    ConfigError,
    DuplicateIdentifierError,
    IdentifierColumnsError,
    SecretError,
    TableNotFoundError,
)
from icecdc_core.ingest import IngestConfig, ingest
from icecdc_core.jobs.setup import check_setup
from tests.conftest import GIVEN_CATALOG

CREATE = "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"


@pytest.fixture(scope="module")
def table(spark):
    columns = "id BIGINT, name STRING, ratio DOUBLE, place STRUCT<city: STRING>"
    spark.sql(f"CREATE TABLE lake.ns.bad_input ({columns}) USING iceberg")
    spark.sql("INSERT INTO lake.ns.bad_input SELECT id, 'n', 0.5, named_struct('city', 'x') FROM range(3)")
    yield "lake.ns.bad_input"
    spark.sql("DROP TABLE lake.ns.bad_input")


@pytest.fixture
def refused(opensearch, make_config, name, indexed):
    """Expect an error of this type whose text holds all these parts, and nothing written."""

    def state():
        position = PositionStore(opensearch, make_config()).read()
        if position is not None and not position.exists and position.batch is None:
            position = None  # only taken and given back
        return {index: indexed(index) for index in opensearch.indices.get(index=f"{name}*")}, position

    @contextmanager
    def expect(error, *parts):
        before = state()
        with pytest.raises(error) as caught:
            yield caught
        text = str(caught.value)
        assert type(caught.value) is error
        assert [part for part in (*parts, "Remedy: ") if part not in text] == [], text
        assert state() == before

    return expect


NOBODY = "http://127.0.0.1:1"  # listens there
GONE, TYPES = "check the catalog's type, address and credentials", "use columns of a whole number"
# What is given, the error, and what its text names.
REFUSED = [
    ({"table": "lake.ns.nowhere"}, TableNotFoundError, ["[table='lake.ns.nowhere']", "SHOW TABLES"]),
    ({"table": "pond.ns.t"}, CatalogError, ["pond", "[catalog_properties", GONE]),
    ({"columns": ["id", "nmae"]}, ColumnNotFoundError, ["[columns=['id', 'nmae']]", "columns: id, name, ratio, place"]),
    ({"identifier_columns": "key"}, IdentifierColumnsError, ["['key']]", "top-level columns: id, name, ratio, place"]),
    ({"identifier_columns": "place.city"}, IdentifierColumnsError, ["['place.city']]", "top-level columns"]),
    ({"identifier_columns": "ratio"}, IdentifierColumnsError, ["double", "['ratio']]", TYPES]),
    ({"opensearch_username": "ann", "opensearch_password": "env:NO"}, SecretError, ["opensearch_password='env:NO']"]),
    *(
        ({"row_filter": condition}, ConfigError, [reason, f"[row_filter={condition!r}]"])
        for condition, reason in {
            "id = 1) OR (1 = 1": "PARSE_SYNTAX_ERROR",
            "nmae = 'a'": "nmae",
            "id + 1": "BOOLEAN",
            "count(id) > 1": "not a condition",
            "id IN (SELECT id FROM lake.ns.bad_input)": "subquery",
            "current_timestamp() > TIMESTAMP '2026-01-01'": "not deterministic",
            "try_reflect('java.lang.System', 'getProperty', 'user.home') = 'x'": "row_filter",
        }.items()
    ),
    # Only rows can show these; they are the filter's fault, not that of the data files.
    *(
        ({"row_filter": condition}, ConfigError, [reason, f"[row_filter={condition!r}]", "try_cast"])
        for condition, reason in {"1 / id < 5": "DIVIDE_BY_ZERO", "CAST(name AS INT) > 0": "CAST_INVALID_INPUT"}.items()
    ),
]


@pytest.mark.usefixtures("compiled_plans")
class DescribeAnInput:
    def it_is_refused_by_an_export_and_found_by_the_setup_check(self, spark, table, make_config, refused):
        for given, error, parts in REFUSED:
            with refused(error, *parts):
                export_table(spark, make_config(**{"table": table, **given}))
        report = check_setup(spark, make_config(table=table, row_filter="1 / id < 5"))
        assert "row_filter fails for a row" in report.problems[0]
        (problem,) = check_setup(spark, make_config(table=table, start_from="123")).problems
        assert "start_from" in problem

    def it_is_named_when_a_later_row_shows_it(self, spark, sql, new_index, refused):
        config = new_index(CREATE, "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", row_filter="1 / (id - 3) < 5")
        sql("INSERT INTO {t} VALUES (3, 'c')")
        for job in (sync_changes, validate_table):
            with refused(ConfigError, "DIVIDE_BY_ZERO", "[row_filter="):
                job(spark, config)


def it_refuses_identifiers_in_the_data(spark, sql, make_config, refused):
    sql(CREATE)
    for rows, error, parts in (
        ("(1, 'a'), (NULL, 'b')", IdentifierColumnsError, ["{'id': None}", "[identifier_columns=['id']]"]),
        ("(1, 'a'), (1, 'b')", DuplicateIdentifierError, ["2 rows share {'id': 1}", "on_duplicate_identifier"]),
    ):
        sql(f"INSERT OVERWRITE {{t}} VALUES {rows}")
        with refused(error, *parts):
            export_table(spark, make_config())
    # Python has no such year.
    sql("ALTER TABLE {t} ADD COLUMN day DATE")
    sql("INSERT OVERWRITE {t} SELECT id, 'a', date '+10000-01-01' FROM range(2)")
    with refused(DuplicateIdentifierError, "2 rows share {'day': '+10000-01-01'}"):
        export_table(spark, make_config(identifier_columns=["day"]))
    sql("ALTER TABLE {t} DROP COLUMN day")
    # One of two is hidden because its document is refused.
    sql("INSERT OVERWRITE {t} VALUES (1, 'a'), (1, '2026-01-01'), (2, '2026-01-02')")
    config = make_config(mapping={"name": {"type": "date"}}, max_rejected_documents=1)
    with refused(DuplicateIdentifierError, "2 rows share {'id': 1}"):
        export_table(spark, config)
    spark.sql(f"DROP TABLE {config.dead_letter_name}")

    sql("INSERT OVERWRITE {t} VALUES (1, 'a'), (2, 'b')")
    export_table(spark, make_config())
    for change, error, shown in (
        ("INSERT INTO {t} VALUES (3, 'c'), (NULL, 'd')", IdentifierColumnsError, "{'id': None}"),
        ("UPDATE {t} SET id = NULL WHERE id = 2", IdentifierColumnsError, "{'id': None}"),
        ("UPDATE {t} SET id = 5", DuplicateIdentifierError, "5"),
    ):
        sql(change)
        with refused(error, shown, "[identifier_columns=['id']]"):
            sync_changes(spark, make_config())
        sql("INSERT OVERWRITE {t} VALUES (1, 'a'), (2, 'b')")


def it_refuses_wrong_catalog_properties_and_prints_no_secret(spark, make_config, refused, monkeypatch):
    monkeypatch.setenv("CATALOG_TOKEN", "very-hidden")
    printed = "jdbc:nothing://ann:very-hidden@x/?password=very-hidden"
    far = {"type": "rest", "uri": NOBODY, "token": "env:CATALOG_TOKEN"}
    for catalog, properties, reason in (
        ("no_such_type", {"type": "warehouse-of-dreams"}, "warehouse-of-dreams"),
        ("no_such_class", {"catalog-impl": "org.example.Nothing"}, "org.example.Nothing"),
        ("no_such_file", {"type": "jdbc", "uri": "jdbc:sqlite:/nowhere/at/all.db", "warehouse": "/t"}, "/nowhere"),
        ("printed", {"type": "jdbc", "uri": printed, "warehouse": "/t"}, "jdbc:nothing://***@x/?password=***"),
        ("far", far, "127.0.0.1"),
    ):
        config = make_config(table=f"{catalog}.ns.t", catalog_properties=json.dumps(properties))
        with refused(CatalogError, reason, "[catalog_properties", GONE) as caught:
            export_table(get_spark(config), config)
        assert "very-hidden" not in f"{caught.value} {config!r}"


def it_refuses_an_expression_of_an_ingest_that_java_does_not_take(spark, warehouse):
    """Before a broker is asked."""
    place = {"warehouse": str(warehouse), "catalog_properties": GIVEN_CATALOG}
    for given, shown in (
        ({"topic_pattern": "(?P<n>a)", "table": "lake.ns.t"}, r"\[topic_pattern="),
        ({"topics": "t", "route_by": "regex", "routes": {"lake.ns.t": "a{2,1}"}}, r"\[routes="),
    ):
        with pytest.raises(ConfigError, match=shown):
            ingest(spark, IngestConfig(job="j", bootstrap_servers="127.0.0.1:9", **place, **given))
