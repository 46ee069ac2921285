"""Bad input, one by one: a typed error before any write, naming the parameter, its value and the remedy."""

from __future__ import annotations

import json
import re
import socket
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
    IndexConflictError,
    IndexNotFoundError,
    OpenSearchAuthError,
    OpenSearchUnreachableError,
    SecretError,
    TableNotFoundError,
)
from icecdc_core.ingest import IngestConfig, ingest
from icecdc_core.jobs.setup import check_setup
from icecdc_core.reporting.reports import check_report_path
from tests.conftest import GIVEN_CATALOG
from tests.loopback_proxy import loopback_proxy

CREATE = "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"
JOBS = pytest.mark.parametrize("job", [export_table, sync_changes], ids=["export", "sync"])


@pytest.fixture(scope="module")
def table(spark):
    """A table of three rows that no test changes."""
    spark.sql(
        "CREATE TABLE lake.ns.bad_input (id BIGINT, name STRING, ratio DOUBLE, place STRUCT<city: STRING>) "
        "USING iceberg"
    )
    spark.sql("INSERT INTO lake.ns.bad_input SELECT id, 'n', 0.5, named_struct('city', 'x') FROM range(3)")
    yield "lake.ns.bad_input"
    spark.sql("DROP TABLE lake.ns.bad_input")


@pytest.fixture
def state(opensearch, make_config, name, indexed):
    """What the cluster holds of this test: its indexes, the documents, and the position."""

    def read():
        position = PositionStore(opensearch, make_config()).read()
        if position is not None and not position.exists and position.batch is None:
            position = None  # only taken and given back
        indexes = sorted(opensearch.indices.get(index=f"{name}*"))
        return indexes, {index: indexed(index) for index in indexes}, position

    return read


@pytest.fixture
def refused(state):
    """Expect an error of this type whose text holds all these parts, and nothing written."""

    @contextmanager
    def expect(error, *parts):
        before = state()
        with pytest.raises(error) as caught:
            yield
        text = str(caught.value)
        assert type(caught.value) is error
        assert [part for part in (*parts, "Remedy: ") if part not in text] == [], text
        assert state() == before

    return expect


@pytest.fixture
def closed_port():
    """A loopback port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class DescribeTheTable:
    @JOBS
    def it_refuses_an_unknown_table(self, spark, make_config, refused, job):
        with refused(TableNotFoundError, "[table='lake.ns.nowhere']", "SHOW TABLES"):
            job(spark, make_config(table="lake.ns.nowhere"))

    def it_refuses_an_unknown_namespace(self, spark, make_config, refused):
        with refused(TableNotFoundError, "[table='lake.nowhere.t']", "check catalog, namespace and table name"):
            export_table(spark, make_config(table="lake.nowhere.t"))

    def it_refuses_a_catalog_the_session_does_not_know(self, spark, make_config, refused):
        with refused(CatalogError, "pond", "[catalog_properties", "check the catalog's type, address and credentials"):
            export_table(spark, make_config(table="pond.ns.t"))

    def it_refuses_a_view(self, spark, make_config, refused):
        spark.range(1).createOrReplaceTempView("only_a_view")
        with refused(TableNotFoundError, "[table='spark_catalog.default.only_a_view']"):
            export_table(spark, make_config(table="spark_catalog.default.only_a_view"))


class DescribeColumns:
    @JOBS
    def it_refuses_an_unknown_column(self, spark, table, make_config, refused, job):
        with refused(ColumnNotFoundError, "[columns=['id', 'nmae']]", "columns: id, name, ratio, place"):
            job(spark, make_config(table=table, columns=["id", "nmae"]))

    @JOBS
    def it_refuses_an_unknown_identifier_column(self, spark, table, make_config, refused, job):
        with refused(
            IdentifierColumnsError, "[identifier_columns=['key']]", "top-level columns: id, name, ratio, place"
        ):
            job(spark, make_config(table=table, identifier_columns="key"))

    def it_refuses_a_field_of_a_struct_as_identifier(self, spark, table, make_config, refused):
        with refused(IdentifierColumnsError, "[identifier_columns=['place.city']]", "top-level columns"):
            export_table(spark, make_config(table=table, identifier_columns=["place.city"]))

    @pytest.mark.parametrize(("column", "kind"), [("ratio", "double"), ("place", "struct<city:string>")])
    def it_refuses_an_identifier_of_a_type_that_does_not_identify(
        self, spark, table, make_config, refused, column, kind
    ):
        with refused(
            IdentifierColumnsError, kind, f"[identifier_columns=['{column}']]", "use columns of a whole number"
        ):
            export_table(spark, make_config(table=table, identifier_columns=[column]))


class DescribeIdentifiersInTheData:
    def it_refuses_to_export_a_null(self, spark, sql, make_config, refused):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (1, 'a'), (NULL, 'b')")
        with refused(IdentifierColumnsError, "{'id': None}", "[identifier_columns=['id']]", "row_filter"):
            export_table(spark, make_config())

    def it_refuses_to_export_duplicates(self, spark, sql, make_config, refused):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (1, 'a'), (1, 'b')")
        with refused(DuplicateIdentifierError, "2 rows share {'id': 1}", "on_duplicate_identifier=last"):
            export_table(spark, make_config())

    @pytest.mark.parametrize(
        ("change", "error", "shown"),
        [
            ("INSERT INTO {t} VALUES (3, 'c'), (NULL, 'd')", IdentifierColumnsError, "{'id': None}"),
            ("UPDATE {t} SET id = NULL WHERE id = 2", IdentifierColumnsError, "{'id': None}"),
            ("INSERT INTO {t} VALUES (3, 'c'), (3, 'd')", DuplicateIdentifierError, "{'id': 3}"),
            ("UPDATE {t} SET id = 5", DuplicateIdentifierError, "5"),
        ],
        ids=["append-null", "update-null", "append-duplicates", "update-duplicates"],
    )
    def it_refuses_to_sync_them(self, spark, sql, make_config, refused, change, error, shown):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
        export_table(spark, make_config())
        sql(change)
        with refused(error, shown, "[identifier_columns=['id']]"):
            sync_changes(spark, make_config())


class DescribeTheCatalog:
    @pytest.mark.parametrize(
        ("catalog", "properties", "reason"),
        [
            ("no_such_type", {"type": "warehouse-of-dreams"}, "warehouse-of-dreams"),
            ("no_such_class", {"catalog-impl": "org.example.Nothing"}, "org.example.Nothing"),
            (
                "no_such_file",
                {"type": "jdbc", "uri": "jdbc:sqlite:/nowhere/at/all.db", "warehouse": "/tmp"},
                "/nowhere",
            ),
            ("no_such_driver", {"type": "jdbc", "uri": "jdbc:nothing:x", "warehouse": "/tmp"}, "jdbc:nothing"),
            ("no_uri", {"type": "rest"}, "uri"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def it_refuses_properties_that_lead_nowhere(self, spark, make_config, refused, catalog, properties, reason):
        config = make_config(table=f"{catalog}.ns.t", catalog_properties=json.dumps(properties))
        with refused(CatalogError, reason, "[catalog_properties", "check the catalog's type, address and credentials"):
            export_table(get_spark(config), config)

    def it_refuses_a_rest_catalog_that_does_not_answer(self, spark, make_config, refused, closed_port):
        uri = f"http://127.0.0.1:{closed_port}"
        config = make_config(table="far.ns.t", catalog_properties={"type": "rest", "uri": uri})
        with refused(CatalogError, str(closed_port), "[catalog_properties", "address"):
            export_table(get_spark(config), config)

    def it_never_prints_the_secrets_of_a_catalog(self, spark, make_config, refused, closed_port, monkeypatch):
        monkeypatch.setenv("CATALOG_TOKEN", "very-hidden")
        properties = {"type": "rest", "uri": f"http://127.0.0.1:{closed_port}", "token": "env:CATALOG_TOKEN"}
        config = make_config(table="closed.ns.t", catalog_properties=properties)
        with pytest.raises(CatalogError) as caught:
            export_table(get_spark(config), config)
        assert "very-hidden" not in f"{caught.value} {config!r}"

    def it_never_prints_the_secrets_in_a_uri(self, spark, make_config):
        properties = {
            "type": "jdbc",
            "uri": "jdbc:nothing://ann:very-hidden@x/?password=very-hidden",
            "warehouse": "/t",
        }
        config = make_config(table="printed.ns.t", catalog_properties=properties)
        with pytest.raises(CatalogError, match=r"jdbc:nothing://\*\*\*@x/\?password=\*\*\*") as caught:
            export_table(get_spark(config), config)
        assert "very-hidden" not in f"{caught.value} {config!r}"

    def it_refuses_a_secret_that_is_not_there(self, make_config):
        config = make_config(table="hidden.ns.t", catalog_properties={"type": "rest", "token": "env:NOT_SET_ANYWHERE"})
        with pytest.raises(SecretError, match=r"catalog_properties\.token='env:NOT_SET_ANYWHERE'\]\. Remedy: export"):
            get_spark(config)


class DescribeOpenSearch:
    @pytest.mark.parametrize("job", [export_table, sync_changes, validate_table])
    def it_refuses_a_server_that_does_not_answer(self, spark, table, make_config, closed_port, job):
        url = f"http://127.0.0.1:{closed_port}"
        with pytest.raises(OpenSearchUnreachableError, match=rf"opensearch_url='{url}'\]\. Remedy: check the URL"):
            job(spark, make_config(table=table, opensearch_url=url))

    @pytest.mark.parametrize("job", [export_table, sync_changes, validate_table])
    def it_refuses_wrong_credentials(self, spark, table, make_config, refused, opensearch_url, monkeypatch, job):
        monkeypatch.setenv("SEARCH_PASSWORD", "guessed-wrong")
        with (
            loopback_proxy(opensearch_url, credentials="ann:right") as proxy,
            refused(OpenSearchAuthError, "401", "opensearch_username", "'ann'", "opensearch_password") as _,
        ):
            job(
                spark,
                make_config(
                    table=table,
                    opensearch_url=proxy.url,
                    opensearch_username="ann",
                    opensearch_password="env:SEARCH_PASSWORD",
                ),
            )

    def it_works_with_the_right_credentials(self, spark, table, make_config, opensearch_url, monkeypatch, indexed):
        monkeypatch.setenv("SEARCH_PASSWORD", "right")
        with loopback_proxy(opensearch_url, credentials="ann:right") as proxy:
            secured = {"opensearch_username": "ann", "opensearch_password": "env:SEARCH_PASSWORD"}
            export_table(spark, make_config(table=table, opensearch_url=proxy.url, **secured))
        assert len(indexed()) == 3

    def it_refuses_a_password_that_is_not_set(self, spark, table, make_config):
        config = make_config(table=table, opensearch_username="ann", opensearch_password="env:NOT_SET_ANYWHERE")
        with pytest.raises(SecretError, match=r"opensearch_password='env:NOT_SET_ANYWHERE'\]\. Remedy: export"):
            export_table(spark, config)


class DescribeParameters:
    @pytest.mark.parametrize(
        ("condition", "reason"),
        [
            ("id >", "PARSE_SYNTAX_ERROR"),
            ("id > 1; DROP TABLE t", "PARSE_SYNTAX_ERROR"),
            ("nmae = 'a'", "nmae"),
            ("id + 1", "BOOLEAN"),
            ("count(id) > 1", "not a condition"),
            ("id IN (SELECT id FROM lake.ns.bad_input)", "subquery"),
            ("random() < 0.5", "not deterministic"),
            ("name = uuid()", "not deterministic"),
            ("current_timestamp() > TIMESTAMP '2026-01-01'", "not deterministic"),
            ("current_date() > DATE '2026-01-01'", "not deterministic"),
        ],
    )
    def it_refuses_a_row_filter_that_is_no_lasting_condition(
        self, spark, table, make_config, refused, condition, reason
    ):
        with refused(ConfigError, reason, f"[row_filter={condition!r}]"):
            export_table(spark, make_config(table=table, row_filter=condition))


@pytest.mark.usefixtures("compiled_plans")
class DescribeAFilterThatFails:
    """Only rows can show it; it is the filter's fault, not that of the data files."""

    @pytest.mark.parametrize(
        ("condition", "reason"),
        [
            ("raise_error('not here') IS NULL", "USER_RAISED_EXCEPTION] not here"),
            ("assert_true(id > 1) IS NULL", "USER_RAISED_EXCEPTION"),
            ("1 / id < 5", "DIVIDE_BY_ZERO"),
            ("CAST(name AS INT) > 0", "CAST_INVALID_INPUT"),
            ("to_number(name, '999') = 1", "INVALID_FORMAT"),
            ("name RLIKE concat('(', name)", "INVALID_PARAMETER_VALUE.PATTERN"),
        ],
    )
    def it_is_named(self, spark, table, make_config, refused, condition, reason):
        with refused(ConfigError, reason, f"[row_filter={condition!r}]", "try_cast"):
            export_table(spark, make_config(table=table, row_filter=condition))

    def it_is_named_by_a_sync_and_a_validation(self, spark, sql, make_config, refused):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
        config = make_config(row_filter="1 / (id - 3) < 5")
        export_table(spark, config)
        sql("INSERT INTO {t} VALUES (3, 'c')")
        for job in (sync_changes, validate_table):
            with refused(ConfigError, "DIVIDE_BY_ZERO", "[row_filter="):
                job(spark, config)

    def it_is_a_problem_that_the_setup_check_finds(self, spark, table, make_config):
        report = check_setup(spark, make_config(table=table, row_filter="1 / id < 5"))
        assert "row_filter fails for a row" in report.problems[0]


class DescribeTheReport:
    @JOBS
    @pytest.mark.parametrize("path", ["{}", "/proc/report.json", "{}/file/report.json", "{}/" + "x" * 300])
    def it_is_known_to_be_unwritable_before_anything_is_written(
        self, spark, table, make_config, refused, tmp_path, job, path
    ):
        (tmp_path / "file").touch()
        path = path.format(tmp_path)
        with refused(ConfigError, "The report cannot be written", f"[report_path={path!r}]"):
            job(spark, make_config(table=table, report_path=path))

    def it_is_left_alone_until_there_is_one(self, tmp_path):
        old, new = tmp_path / "old.json", tmp_path / "folder" / "new.json"
        old.write_text("the last one")
        for path in (old, new):
            check_report_path(str(path))
        assert (old.read_text(), new.exists(), new.parent.is_dir()) == ("the last one", False, True)


class DescribeExpressionsOfAnIngest:
    """Java matches them; what it does not take is refused before a broker is asked."""

    @pytest.mark.parametrize(
        ("given", "shown"),
        [
            ({"topic_pattern": "(?P<n>a)", "table": "lake.ns.t"}, "[topic_pattern='(?P<n>a)']"),
            ({"topics": "t", "route_by": "regex", "routes": {"lake.ns.t": "a{2,1}"}}, "[routes='a{2,1}']"),
            ({"topics": "t", "route_by": "regex", "routes": {"lake.ns.t": "\\Qa"}}, "[routes='\\\\Qa']"),
        ],
    )
    def it_refuses_one_that_java_does_not_take(self, spark, warehouse, given, shown):
        place = {"warehouse": str(warehouse), "catalog_properties": GIVEN_CATALOG}
        config = IngestConfig(job="j", bootstrap_servers="127.0.0.1:9", **place, **given)
        with pytest.raises(ConfigError, match=re.escape(shown)):
            ingest(spark, config)


class DescribeTheIndex:
    def it_refuses_to_validate_an_index_that_was_never_exported(self, spark, table, make_config, refused, name):
        with refused(IndexNotFoundError, f"[index='{name}']", "run the export first"):
            validate_table(spark, make_config(table=table))

    @JOBS
    def it_refuses_an_index_that_is_not_ours(self, spark, table, make_config, refused, opensearch, name, job):
        opensearch.index(index=name, id="1", body={"somebody": "else's"})
        with refused(IndexConflictError, f"[index='{name}']", "choose another index name"):
            job(spark, make_config(table=table))

    @JOBS
    def it_refuses_an_alias_of_an_index_that_is_not_ours(
        self, spark, table, make_config, refused, opensearch, name, job
    ):
        opensearch.indices.create(index=f"{name}-of-others", body={"aliases": {name: {}}})
        with refused(IndexConflictError, f"{name}-of-others", f"[index='{name}']", "choose another index name"):
            job(spark, make_config(table=table))

    @JOBS
    @pytest.mark.parametrize("positions_index", ["positions-{}", "other-positions-{}"], ids=["known", "unknown"])
    def it_refuses_the_index_of_another_table(
        self, spark, sql, table, make_config, refused, name, job, positions_index
    ):
        export_table(spark, make_config(table=table))
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (1, 'a')")
        with refused(IndexConflictError, "lake.ns.bad_input", f"[index='{name}']", "another name"):
            job(spark, make_config(positions_index=positions_index.format(name)))
