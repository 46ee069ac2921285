"""Parameters: conversion from strings, all problems in one error, no secret in any text."""

import base64
import json
import pickle
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.config.values import MAX_TARGET_BYTES
from icecdc_core.errors import ConfigError
from icecdc_core.opensearch.client import Connection
from icecdc_core.opensearch.indexes import physical_index, write_alias
from icecdc_core.secrets import Properties
from icecdc_core.session.catalog import embedded_catalog_properties


def problems(**parameters):
    with pytest.raises(ConfigError) as raised:
        SyncConfig(**{"table": "lake.ns.t", **parameters})
    return raised.value.problems


class DescribeCoercion:
    @pytest.mark.parametrize(
        ("parameter", "given", "expected"),
        [
            ("dry_run", "true", True),
            ("dry_run", "False", False),
            ("dry_run", "", False),
            ("dry_run", None, False),
            ("opensearch_verify_certs", "0", False),
            ("max_polls", "0", 0),
            ("max_polls", "", 1),
            ("poll_interval_seconds", "2.5", 2.5),
            ("bulk_bytes", " 2048 ", 2048),
            ("change_mode", "SNAPSHOT", "snapshot"),
            ("identifier_columns", "a, b", ["a", "b"]),
            ("identifier_columns", ("a", "b"), ["a", "b"]),
            ("identifier_columns", '["a,b","c"]', ["a,b", "c"]),
            ("identifier_columns", "", []),
            ("columns", ["a"], ["a"]),
            ("catalog_properties", '{"type":"rest","ssl":true,"n":3}', {"type": "rest", "ssl": "true", "n": "3"}),
            ("catalog_properties", {"type": "rest"}, {"type": "rest"}),
            ("catalog_properties", "", {}),
            ("spark_conf", '{"spark.x":"1"}', {"spark.x": "1"}),
            ("opensearch_url", "https://h:9200/", "https://h:9200"),
            ("start_from", 123, "123"),
            ("start_from", datetime(2026, 1, 1), "2026-01-01T00:00:00"),
        ],
    )
    def it_accepts_what_a_job_can_pass(self, parameter, given, expected):
        config = SyncConfig(table="lake.ns.t", **{parameter: given})
        assert getattr(config, parameter) == expected

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("", None),
            ("latest", "latest"),
            ("EARLIEST", "earliest"),
            ("4875243452", 4875243452),
            ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
            ("2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
            ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ],
    )
    def it_knows_what_start_from_means(self, given, expected):
        assert SyncConfig(table="lake.ns.t", start_from=given).start_point == expected


class DescribeNames:
    @pytest.mark.parametrize(
        ("table", "parts", "quoted"),
        [
            ("lake.ns.t", ("lake", "ns", "t"), "`lake`.`ns`.`t`"),
            ("lake.a.b.t", ("lake", "a", "b", "t"), "`lake`.`a`.`b`.`t`"),
            ("lake.`a.b`.`my ``t`", ("lake", "a.b", "my `t"), "`lake`.`a.b`.`my ``t`"),
        ],
    )
    def it_splits_the_table_name(self, table, parts, quoted):
        config = SyncConfig(table=table, index="t")
        assert (config.table_parts, config.quoted_table) == (parts, quoted)
        assert (config.catalog, config.namespace, config.table_name) == (parts[0], ".".join(parts[1:-1]), parts[-1])

    @pytest.mark.parametrize(
        "table", ["t", "ns.t", "lake..t", "lake.ns.", ".ns.t", "lake.ns.t x", "lake.ns.`t", "la:ke.ns.t", "lake.` `.t"]
    )
    def it_refuses_what_is_no_table_name(self, table):
        (problem,) = problems(table=table, index="t")
        assert problem.startswith("table: ")
        assert f"[table={table!r}]" in problem
        assert "Remedy: " in problem

    def it_names_the_index_after_the_table(self):
        assert SyncConfig(table="lake.ns.Flights").index == "flights"

    def it_asks_for_an_index_when_the_table_name_cannot_be_one(self):
        (problem,) = problems(table="lake.ns._t")
        assert problem.startswith("index: is not a name that OpenSearch accepts for an index [index='_t']")

    @pytest.mark.parametrize("name", ["a", "0", "a-b_c+d", "é", ".a", "a.b", "x" * MAX_TARGET_BYTES])
    def it_accepts_index_names_that_opensearch_accepts(self, name):
        assert SyncConfig(table="lake.ns.t", index=name).index == name

    @pytest.mark.parametrize(
        "name",
        [
            "A",
            "_a",
            "-a",
            "+a",
            ".",
            "..",
            "x" * (MAX_TARGET_BYTES + 1),
            "é" * 128,
            *(f"a{c}b" for c in '\\/*?"<>| ,#:'),
        ],
    )
    def it_refuses_index_names_opensearch_refuses(self, name):
        (problem,) = problems(index=name)
        assert problem.startswith("index: ")

    def it_leaves_room_for_the_names_of_the_physical_index(self):
        longest = write_alias(physical_index("x" * MAX_TARGET_BYTES, 2**63 - 1))
        assert len(longest.encode()) == 255

    @pytest.mark.parametrize(
        "url", ["localhost:9200", "ftp://h", "http://", "http://h:99999", "http://h:x", "http://a b"]
    )
    def it_refuses_what_is_no_url(self, url):
        (problem,) = problems(opensearch_url=url)
        assert problem.startswith("opensearch_url: ")
        assert url in problem


class DescribeServerless:
    @pytest.mark.parametrize(
        "host",
        [
            "abc123.eu-central-1.aoss.amazonaws.com",
            "abc123.cn-north-1.aoss.amazonaws.com.cn:443/",
            "abc123.aoss.eu-central-1.on.aws",
        ],
    )
    def it_is_refused_with_the_reason(self, host):
        (problem,) = problems(opensearch_url=f"https://{host}")
        assert problem.startswith("opensearch_url: is for OpenSearch Serverless (aoss), which is not supported: ")
        (problem,) = problems(opensearch_aws_service="AOSS")
        assert "Serverless (aoss) is not supported" in problem

    @pytest.mark.parametrize("url", ["https://search-aoss-x.eu-central-1.es.amazonaws.com", "https://aoss.example.org"])
    def it_is_not_confused_with_other_clusters(self, url):
        assert SyncConfig(table="lake.ns.t", opensearch_url=url).opensearch_url == url


class DescribeProblems:
    @pytest.mark.parametrize(
        ("parameter", "value", "words"),
        [
            ("tabel", "x", "did you mean table"),
            ("zzz", "x", "unknown parameter"),
            ("dry_run", "maybe", "valid boolean"),
            ("bulk_bytes", "many", "valid integer"),
            ("bulk_bytes", "1", "greater than or equal to 1024"),
            ("max_polls", "-1", "greater than or equal to 0"),
            ("retry_timeout_seconds", "nan", "finite"),
            ("change_mode", "gross", "'net' or 'snapshot'"),
            ("start_from", "yesterday", "snapshot id"),
            ("branch", "a\nb", "control characters"),
            ("columns", "a,,b", "blank"),
            ("export_group_bytes", str(2**63), "less than or equal to"),
            ("start_from", str(2**63), "too many digits"),
            ("start_from", "0001-01-01T00:00:00+14:00", "ISO timestamp"),
            ("start_from", "9999-12-31T23:59:59-14:00", "ISO timestamp"),
            ("columns", "a,b,a", "twice: a"),
            ("columns", '["a"', "JSON array"),
            ("columns", 3, "list of column names"),
            ("columns", [1], "list of column names"),
        ],
    )
    def it_names_parameter_value_and_remedy(self, parameter, value, words):
        (problem,) = problems(**{parameter: value})
        assert problem.startswith(f"{parameter}: ")
        assert words in problem
        assert f"[{parameter}={value!r}]" in problem
        assert "Remedy: " in problem

    def it_survives_a_number_of_thousands_of_digits(self):
        (problem,) = problems(max_polls=10**5000)
        assert problem.startswith("max_polls: ")

    @pytest.mark.parametrize("value", ["{'a'", "[1]", "3", '{"a":{}}', '{"a":null}', {"a": []}, {1: "a"}, ["a"]])
    @pytest.mark.parametrize("parameter", ["catalog_properties", "spark_conf"])
    def it_refuses_malformed_properties_without_showing_them(self, parameter, value):
        (problem,) = problems(**{parameter: value})
        assert problem.startswith(f"{parameter}: ")
        assert "not shown" in problem

    def it_refuses_a_url_with_a_query_unseen(self):
        (problem,) = problems(opensearch_url="http://h:9200/?key=hunter2")
        assert problem.startswith("opensearch_url: has a query")
        assert "hunter2" not in problem

    def it_reports_all_of_them_at_once(self):
        found = problems(table="t", index="A", max_polls="x", tabel="y", columns="a", identifier_columns="b")
        assert [problem.split(":")[0] for problem in found] == [
            "table",
            "index",
            "max_polls",
            "tabel",
            "identifier_columns",
        ]

    def it_says_that_the_table_is_missing(self):
        with pytest.raises(ConfigError, match="table: missing"):
            SyncConfig(index="t")

    @pytest.mark.parametrize(
        ("parameters", "wrong"),
        [
            ({"opensearch_username": "u", "opensearch_password": "hunter2"}, "opensearch_password"),
            ({"target_lag": "soon", "poll_interval_seconds": 30}, "target_lag"),
            ({"columns": "a,,b", "identifier_columns": "c"}, "columns"),
        ],
    )
    def it_reports_no_problem_that_follows_from_another(self, parameters, wrong):
        assert [problem.partition(":")[0] for problem in problems(**parameters)] == [wrong]

    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"columns": "a,b", "identifier_columns": "a,c"}, "identifier_columns: c not in columns"),
            ({"opensearch_username": "u"}, "opensearch_password: missing"),
            ({"opensearch_password": "env:P"}, "opensearch_username: missing"),
            ({"index": "icecdc-positions"}, "index: 'icecdc-positions' is also the positions_index"),
            (
                {"target_lag": "10s", "poll_interval_seconds": "30"},
                "target_lag: 10.0 is shorter than poll_interval_seconds=30.0. Remedy: ",
            ),
        ],
    )
    def it_sees_what_does_not_fit_together(self, parameters, words):
        (problem,) = problems(**parameters)
        assert problem.startswith(words)

    @pytest.mark.parametrize(("target_lag", "interval"), [("10s", 10), ("5m", 0), ("", 30), (2.5, "0.5")])
    def it_accepts_a_target_lag_that_is_not_shorter_than_the_poll_interval(self, target_lag, interval):
        given = {"target_lag": target_lag, "poll_interval_seconds": interval}
        assert SyncConfig(table="lake.ns.t", **given).poll_interval_seconds == float(interval)


class DescribeSettingsGivenTwice:
    @pytest.mark.parametrize("parameter", ["number_of_shards", "number_of_replicas"])
    @pytest.mark.parametrize("settings", ['{{"{0}": 1}}', '{{"index.{0}": 1}}', '{{"index": {{"{0}": 1}}}}'])
    def it_refuses_a_parameter_that_the_settings_have_too(self, parameter, settings):
        (problem,) = problems(settings=settings.format(parameter), **{parameter: "1"})
        assert problem.startswith(f"settings: has {parameter} twice, also as a parameter. Remedy: ")

    @pytest.mark.parametrize(
        ("settings", "twice"),
        [
            ({"refresh_interval": "5s", "index.refresh_interval": "5s"}, "refresh_interval"),
            ({"index": {"refresh_interval": "5s"}, "refresh_interval": "1s"}, "refresh_interval"),
            ({"index": {"refresh_interval": "5s"}, "index.refresh_interval": "1s"}, "refresh_interval"),
            ({"search": {"idle.after": "1s"}, "search.idle": {"after": "1s"}}, "search.idle.after"),
        ],
    )
    def it_refuses_two_spellings_of_a_setting(self, settings, twice):
        (problem,) = problems(settings=settings)
        assert problem.startswith(f"settings: has {twice} twice (index. may be left out). Remedy: ")

    @pytest.mark.parametrize(
        "settings",
        [
            {"number_of_shards": 3, "index": {"number_of_replicas": 0}},
            {"index": {"search": {"idle.after": "1s"}}, "search.slowlog.level": "info"},
            {"analysis": {"filter": {}}, "index.analysis.filter.a": {"type": "stop"}},
        ],
    )
    def it_accepts_settings_that_are_given_once(self, settings):
        assert SyncConfig(table="lake.ns.t", settings=settings).settings == settings


class DescribeJsonObjects:
    @pytest.mark.parametrize("name", ["mapping", "settings"])
    @pytest.mark.parametrize(
        "value",
        [{1, 2}, datetime(2026, 1, 31, tzinfo=UTC), float("nan"), 10**5000, object(), {(1,): 2}],
        ids=["set", "datetime", "nan", "huge", "object", "key"],
    )
    def it_refuses_a_value_that_is_no_json(self, name, value):
        (problem,) = problems(**{name: {"a": {"b": value}}})
        assert problem.startswith(f"{name}: has a value that JSON cannot represent [")

    def it_keeps_values_as_json_reads_them(self):
        actual = SyncConfig(table="lake.ns.t", settings={"a": (1, 2.5), "b": {1: None, "c": True}})
        assert actual.settings == {"a": [1, 2.5], "b": {"1": None, "c": True}}


class DescribeSecretsInParameters:
    SECRETS = (
        {"opensearch_username": "u", "opensearch_password": "hunter2"},
        {"opensearch_username": "u", "opensearch_password": ["hunter2"]},
        {"opensearch_url": "http://u:hunter2@h:9200"},
        {"opensearch_url": "hunter2@h"},
        {"opensearch_pasword": "hunter2"},
        {"s3_token": "hunter2"},
        {"wrehouse": "http://u:hunter2@h"},
        {"catalog_properties": '{"s3.secret-access-key":"hunter2"'},
        {"catalog_properties": {"jdbc.password": ["hunter2"]}},
        {"catalog_properties": {"type": "rest", "uri": "http://u:hunter2@h:8181"}},
        {"catalog_properties": '{"type":"rest","uri":"HTTPS://hunter2@h/catalog"}'},
        {"catalog_properties": {"type": "rest", "uri": "http://u:p/hunter2@h:8181"}},
        {"catalog_properties": {"oauth2-server-uri": "https://u:hunter2@h/token"}},
        {"catalog_properties": {"s3.endpoint": " https://u:hunter2@h"}},
        {"spark_conf": {"spark.sql.catalog.lake.uri": "http://u:hunter2@h:8181"}},
    )

    @pytest.mark.parametrize("parameters", SECRETS)
    def it_refuses_them_unseen(self, parameters):
        assert "hunter2" not in "\n".join(problems(**parameters))

    def it_names_the_catalog_property_whose_url_has_credentials(self):
        (problem,) = problems(catalog_properties={"uri": "http://u:hunter2@h", "token": "env:T"})
        assert problem.startswith(
            "catalog_properties: must not carry credentials in a URL, as 'uri' does (value not shown)"
        )
        assert "env:NAME" in problem

    @pytest.mark.parametrize(
        ("parameters", "subject"),
        [
            ({"catalog_properties": {"type": "rest", "uri": "env:ICECDC_TEST_URL"}}, "catalog_properties.uri"),
            ({"spark_conf": {"spark.sql.catalog.lake.uri": "env:ICECDC_TEST_URL"}}, "spark_conf.spark.sql.catalog"),
        ],
    )
    def it_refuses_a_reference_to_a_url_with_credentials_unseen(self, monkeypatch, parameters, subject):
        monkeypatch.setenv("ICECDC_TEST_URL", "https://u:hunter2@h:8181")
        config = SyncConfig(table="lake.ns.t", **parameters)
        with pytest.raises(ConfigError, match=re.escape(f"[{subject}")) as caught:
            config.resolved_catalog_properties() or config.resolved_spark_conf()
        assert "hunter2" not in str(caught.value)

    def it_accepts_credentials_in_urls_of_settings_that_are_not_a_catalogs(self):
        given = {"spark.jars.repositories": "https://u:hunter2@h/maven"}
        assert SyncConfig(table="lake.ns.t", spark_conf=given).resolved_spark_conf() == given

    @pytest.mark.parametrize(
        "properties",
        [
            {"s3.secret-access-key": "hunter2"},
            {"s3.access-key-id": "hunter2"},
            {"jdbc.password": "hunter2"},
            {"token": "hunter2"},
            {"credential": "id:hunter2"},
            {"adls.auth.shared-key.account.key": "hunter2"},
            {"uri": "jdbc:postgresql://u:hunter2@h/db"},
            {"uri": "jdbc:postgresql://h/db?user=u&password=hunter2"},
        ],
    )
    def it_hides_plain_ones_of_the_catalog_wherever_a_config_is_shown(self, properties):
        config = SyncConfig(table="lake.ns.t", catalog_properties=properties, spark_conf=properties)
        shown = [repr(config), str(config), config.model_dump(), config.model_dump_json(), config.redacted()]
        assert "hunter2" not in repr([*shown, config.catalog_properties, dict(config)])
        assert config.resolved_catalog_properties() == config.resolved_spark_conf() == properties

    def it_shows_references_and_resolves_them(self, monkeypatch):
        monkeypatch.setenv("ICECDC_TEST_SECRET", "hunter2")
        config = SyncConfig(
            table="lake.ns.t",
            opensearch_username="u",
            opensearch_password="env:ICECDC_TEST_SECRET",
            catalog_properties={"token": "env:ICECDC_TEST_SECRET", "type": "rest"},
        )
        assert config.redacted()["opensearch_password"] == "env:ICECDC_TEST_SECRET"
        assert config.resolved_password() == "hunter2"
        assert config.resolved_catalog_properties() == {"token": "hunter2", "type": "rest"}

    def it_resolves_the_user_name_for_the_client_and_shows_the_reference(self, monkeypatch):
        monkeypatch.setenv("ICECDC_TEST_SECRET", "hunter2")
        given = {"opensearch_username": "env:ICECDC_TEST_SECRET", "opensearch_password": "env:ICECDC_TEST_SECRET"}
        config = SyncConfig(table="lake.ns.t", **given)
        connection = Connection.of(config)
        client = connection.client()
        headers = client.transport.get_connection().headers
        client.close()
        expected = f"Basic {base64.b64encode(b'hunter2:hunter2').decode()}"
        assert (config.resolved_username(), headers["authorization"]) == ("hunter2", expected)
        assert (connection.username, "hunter2" in repr([config, connection])) == ("env:ICECDC_TEST_SECRET", False)
        assert SyncConfig(table="lake.ns.t", **{**given, "opensearch_username": "u"}).resolved_username() == "u"

    @pytest.mark.parametrize(
        "name",
        [
            *("warehouse", "metrics_folder", "report_path", "log_path", "opensearch_ca_certs"),
            *("opensearch_client_cert", "opensearch_client_key", "opensearch_aws_region"),
        ],
    )
    @pytest.mark.parametrize("reference", ["env:ICECDC_TEST_SECRET", "secret:search/key"])
    def it_refuses_a_reference_that_nobody_would_resolve(self, name, reference):
        found = problems(**{"opensearch_client_cert": "/a.pem", name: reference})
        assert [problem.partition(" [")[0] for problem in found] == [f"{name}: cannot be a reference to a secret"]


class DescribeSyncConfig:
    def it_is_frozen(self):
        config = SyncConfig(table="lake.ns.t")
        with pytest.raises(Exception, match="frozen"):
            config.table = "lake.ns.u"

    def it_survives_pickling_with_its_real_values(self):
        config = SyncConfig(table="lake.ns.t", catalog_properties={"token": "hunter2"})
        copy = pickle.loads(pickle.dumps(config))
        assert copy == config
        assert copy.catalog_properties["token"] == "hunter2"

    def it_is_checked_again_when_a_parameter_is_replaced(self):
        config = SyncConfig(table="lake.ns.t", columns="a", catalog_properties={"token": "hunter2"})
        assert config.replace(index="u").resolved_catalog_properties() == {"token": "hunter2"}
        with pytest.raises(ConfigError, match="identifier_columns"):
            config.replace(identifier_columns="b")

    def it_writes_itself_as_json(self):
        config = SyncConfig(table="lake.ns.t", columns="a")
        assert SyncConfig(**json.loads(config.model_dump_json())) == config

    def it_documents_every_parameter(self):
        parameters = SyncConfig.parameters()
        assert [p.name for p in parameters] == list(SyncConfig.model_fields)
        types = {"str", "int", "float", "bool", "list[str]", "dict[str, str]", "dict[str, Any]"}
        assert {p.type for p in parameters} == types
        assert [p.name for p in parameters if not p.help.endswith(".")] == []

    def it_has_an_example_for_every_free_text_that_it_accepts(self):
        given = {"table": "lake.ns.t", "opensearch_username": "u", "opensearch_password": "env:P"}
        given |= {"opensearch_client_cert": "c", "opensearch_client_key": "k"}
        missing = []
        for name, field in SyncConfig.model_fields.items():
            for example in field.examples or ():
                others = {} if name == "opensearch_aws_region" else given
                SyncConfig(**{"table": "lake.ns.t", **others, "columns": "", name: example, "index": "other"})
            if field.annotation in (str, list[str], Properties) and not field.examples:
                missing.append(name)
        assert missing == ["routing", "index_column", "nest"]  # reserved, so nothing is accepted

    def it_has_the_documented_defaults(self):
        defaults = {p.name: p.default for p in SyncConfig.parameters()}
        assert SyncConfig(**{**defaults, "table": "lake.ns.t"}) == SyncConfig(table="lake.ns.t")

    def it_finds_the_data_folder(self, monkeypatch):
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        home = str(Path.home() / ".local/share/icecdc/warehouse")
        assert SyncConfig(table="lake.ns.t").warehouse_location == home
        monkeypatch.setenv("XDG_DATA_HOME", "/data")
        assert SyncConfig(table="lake.ns.t").warehouse_location == "/data/icecdc/warehouse"
        monkeypatch.setenv("XDG_DATA_HOME", "relative")
        assert SyncConfig(table="lake.ns.t").warehouse_location == home

    def it_keeps_the_catalog_of_a_remote_warehouse_in_the_data_folder(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        assert f"{tmp_path}/icecdc/catalog-" in embedded_catalog_properties("s3://bucket/w")["uri"]

    @pytest.mark.parametrize(
        ("given", "expected"),
        [("s3://b/w", "s3://b/w"), ("/w", "/w"), ("~/w", str(Path.home() / "w")), ("w", str(Path.cwd() / "w"))],
    )
    def it_accepts_a_warehouse_as_path_or_url(self, given, expected):
        assert SyncConfig(table="lake.ns.t", warehouse=given).warehouse_location == expected


def test_a_derived_index_is_derived_again_by_replace():
    assert SyncConfig(table="lake.h.aa").replace(table="lake.h.bb").index == "bb"
    assert SyncConfig(table="lake.h.aa", index="mine").replace(table="lake.h.bb").index == "mine"
