"""Parameters: conversion from strings, all problems in one error, no secret in any text."""

import base64
import contextlib
import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import numpy
import pytest
from hypothesis import example, given, settings, strategies as st

from icecdc_core import replay_dead_letters, validate_table
from icecdc_core.columns import quoted
from icecdc_core.config import SyncConfig
from icecdc_core.config.values import MAX_TARGET_BYTES, split_table_name
from icecdc_core.errors import ConfigError
from icecdc_core.opensearch.bulk import bulk_path
from icecdc_core.opensearch.client import Connection
from icecdc_core.opensearch.indexes import physical_index, write_alias
from icecdc_core.session.catalog import embedded_catalog_properties


def config(**parameters):
    return SyncConfig(**{"table": "lake.ns.t", **parameters})


def problems(**parameters):
    with pytest.raises(ConfigError) as raised:
        config(**parameters)
    return raised.value.problems


class DescribeCoercion:
    @pytest.mark.parametrize(
        ("parameter", "given", "expected"),
        [
            ("dry_run", "true", True), ("dry_run", "", False), ("dry_run", None, False),
            ("opensearch_verify_certs", "0", False), ("max_polls", "0", 0), ("poll_interval_seconds", "2.5", 2.5),
            ("bulk_bytes", " 2048 ", 2048), ("change_mode", "SNAPSHOT", "snapshot"),
            ("identifier_columns", "a, b", ["a", "b"]), ("identifier_columns", ("a", "b"), ["a", "b"]),
            ("identifier_columns", '["a,b"," c"]', ["a,b", " c"]), ("columns", ["a", "a "], ["a", "a "]),
            ("mapping", {"a ": {}}, {"a ": {}}), ("opensearch_ca_certs", "~/ca.pem", str(Path.home() / "ca.pem")),
            ("identifier_columns", "", []),
            ("catalog_properties", '{"type":"rest","ssl":true,"n":3}', {"type": "rest", "ssl": "true", "n": "3"}),
            ("catalog_properties", "", {}),
            ("settings", {"a": (1, 2.5), "b": {1: None, "c": True}}, {"a": [1, 2.5], "b": {"1": None, "c": True}}),
            ("opensearch_url", "HTTPS://h:9200/", "https://h:9200"), ("start_from", numpy.int64(7), "7"),
            ("start_from", datetime(2026, 1, 1), "2026-01-01T00:00:00"), ("target_lag", "5m", 300.0),
        ],
    )  # fmt: skip
    def it_accepts_what_a_job_can_pass(self, parameter, given, expected):
        assert getattr(config(**{parameter: given}), parameter) == expected

    def it_knows_what_start_from_means(self):
        for text, expected in (
            *(("", None), ("latest", "latest"), ("EARLIEST", "earliest"), ("4875243452", 4875243452)),
            ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
            ("2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
            ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ):
            assert config(start_from=text).start_point == expected


NAMES = st.text(min_size=1, max_size=40) | st.text("abc_-./\\%?#&=;:'\"`*,<>|+ \n\t${}()[]", min_size=1, max_size=20)


class DescribeNames:
    def it_splits_the_table_name_and_has_one_spelling_of_it(self):
        for table, spelling, parts in (
            ("lake.a.b.t", "lake.a.b.t", ("lake", "a", "b", "t")),
            ("`lake`.a.`t_1`", "lake.a.t_1", ("lake", "a", "t_1")),
            ("lake.a-b.`1`", "lake.`a-b`.`1`", ("lake", "a-b", "1")),
            ("lake.`a.b`.`my ``t`", "lake.`a.b`.`my ``t`", ("lake", "a.b", "my `t")),
        ):
            actual = config(table=table, index="t", nest={"n": {"table": table, "on": "true"}})
            assert (actual.table, actual.entries["n"].table) == (spelling, spelling)
            assert (actual.table_parts, actual.catalog, actual.table_name) == (parts, parts[0], parts[-1])
            assert split_table_name(actual.table) == parts

    def it_names_the_index_after_the_table_and_derives_it_again(self):
        assert config(table="lake.ns.Flights").index == "flights"
        assert config(table="lake.h.aa").replace(table="lake.h.bb").index == "bb"
        assert config(table="lake.h.aa").model_copy(update={"table": "lake.h.bb"}).index == "bb"
        assert config(table="lake.h.aa", index="mine").replace(table="lake.h.bb").index == "mine"
        assert problems(table="lake.ns._t")[0].startswith("index: is not a name that OpenSearch accepts")

    @pytest.mark.parametrize("name", ["0", "a-b_c+d", "é", ".a", "x" * MAX_TARGET_BYTES])
    def it_accepts_index_names_that_leave_room_for_the_physical_index(self, name):
        assert len(write_alias(physical_index(config(index=name).index, 2**63 - 1)).encode()) <= 255

    @settings(max_examples=100, deadline=None)
    @given(NAMES | st.lists(NAMES, min_size=3, max_size=4).map(".".join))
    @example("a%2f_all")
    @example("a/_all")
    @example("*")
    @example("lake.ns.`a``b`")
    @example("lake.ns.t; DROP TABLE x")
    def it_lets_a_name_mean_one_index_or_table_whatever_is_in_it(self, name):
        with contextlib.suppress(ConfigError):
            physical = f"{config(index=name).index}--000001--WRITE"
            segments = bulk_path(physical).split("/")
            whole = unquote(segments[1]) == physical
            assert (len(segments), segments[2], whole, set("*,?#") & set(segments[1])) == (3, "_bulk", True, set())
        with contextlib.suppress(ConfigError):
            actual = config(table=name, index="t")
            assert split_table_name(actual.table) == actual.table_parts == split_table_name(name.strip())
        inside = quoted(name)[1:-1]
        assert (quoted(name)[0], quoted(name)[-1], inside.replace("``", "").count("`")) == ("`", "`", 0)


WRONG = [
    *(("table", name) for name in ("t", "ns.t", "lake..t", "lake.ns.", "lake.ns.t x", "lake.ns.`t", "la:ke.ns.t")),
    *(("index", name) for name in ("A", "_a", "-a", "+a", "..", "x" * (MAX_TARGET_BYTES + 1), "é" * 128)),
    *(("index", f"a{character}b") for character in '\\/*?"<>| ,#:'),
    *(("positions_index", name) for name in ("*", "a,b", "a/../b", "<a-{now/d}>")),
    *(("opensearch_url", url) for url in ("localhost:9200", "ftp://h", "http://", "http://h:99999", "http://a b")),
    ("dry_run", "maybe"), ("bulk_bytes", "many"), ("max_polls", "-1"), ("retry_timeout_seconds", "nan"),
    ("change_mode", "gross"), ("branch", "a\nb"), ("start_from", "yesterday"), ("start_from", str(2**63)),
    ("start_from", "0001-01-01T00:00:00+14:00"), ("start_from", "9999-12-31T23:59:59-14:00"), ("columns", "a,,b"),
    ("columns", "a,b,a"), ("columns", '["a"'), ("columns", 3), ("columns", [1]), ("mapping", ["a"]),
    ("settings", {"a": {"b": float("nan")}}), ("settings", {"a": {1, 2}}), ("settings", '{"a"'),
    ("settings", numpy.array(["a", "b"])), ("columns", numpy.array(["a", "b"])),
    ("warehouse", "~nobodyx/w"), ("log_path", "~nobodyx/log"), ("warehouse", "env:A"), ("warehouse", "secret:a/key"),
]  # fmt: skip


class DescribeProblems:
    @pytest.mark.parametrize(("parameter", "value"), WRONG)
    def it_names_parameter_and_remedy(self, parameter, value):
        (problem,) = problems(**{"index": "t", parameter: value})
        assert (problem.partition(": ")[0], "Remedy: " in problem) == (parameter, True)
        assert f"[{parameter}=" in problem

    @pytest.mark.parametrize("value", ["{'a'", "[1]", "3", '{"a":{}}', '{"a":null}', {"a": []}, {1: "a"}, ["a"]])
    def it_refuses_malformed_properties_without_showing_them(self, value):
        (problem,) = problems(catalog_properties=value)
        assert (problem.partition(": ")[0], "not shown" in problem) == ("catalog_properties", True)

    @pytest.mark.parametrize(
        ("parameters", "wrong"),
        [
            ({"opensearch_username": "u", "opensearch_password": "hunter2"}, "opensearch_password"),
            ({"columns": "a,,b", "identifier_columns": "c"}, "columns"),
            ({"columns": "a,b", "identifier_columns": "a,c"}, "identifier_columns"),
            ({"columns": "a", "select": '["b"]'}, "select"),
            ({"opensearch_username": "u"}, "opensearch_password"),
            ({"opensearch_password": "env:P"}, "opensearch_username"),
            ({"opensearch_aws_region": "eu-1", "opensearch_username": "a", "opensearch_password": "env:A"},
                "opensearch_aws_region"),
            ({"opensearch_client_key": "k"}, "opensearch_client_cert"),
            ({"opensearch_url": "http://h:1", "opensearch_client_cert": "c"}, "opensearch_client_cert"),
            ({"index": "icecdc-positions"}, "index"),
            ({"number_of_shards": 3, "settings": {"index": {"number_of_shards": 2}}}, "number_of_shards"),
            ({"settings": {"search": {"idle.after": "1s"}, "index": {"search.idle": {"after": "1s"}}}}, "settings"),
        ],
    )  # fmt: skip
    def it_reports_once_what_does_not_fit_together(self, parameters, wrong):
        assert [problem.partition(":")[0] for problem in problems(**parameters)] == [wrong]


class DescribeSecrets:
    @pytest.mark.parametrize(
        "parameters",
        [
            {"opensearch_username": "u", "opensearch_password": "hunter2"},
            {"opensearch_username": "u", "opensearch_password": ["hunter2"]},
            {"opensearch_username": "u", "opensearch_password": {"a": "hunter2"}},
            {"opensearch_url": "http://u:hunter2@h:9200"},
            {"opensearch_url": "hunter2@h"},
            {"opensearch_url": "http://h:9200/?key=hunter2"},
            {"opensearch_pasword": "hunter2"},
            {"s3_token": "hunter2"},
            {"wrehouse": "http://u:hunter2@h"},
            {"catalog_properties": '{"s3.secret-access-key":"hunter2"'},
            {"catalog_properties": {"jdbc.password": ["hunter2"]}},
            {"catalog_properties": {"type": "rest", "uri": "http://u:hunter2@h:8181"}},
            {"catalog_properties": '{"type":"rest","uri":"HTTPS://hunter2@h/catalog"}'},
            {"catalog_properties": {"type": "rest", "uri": "http://u:p/hunter2@h:8181"}},
            {"catalog_properties": {"s3.endpoint": " https://u:hunter2@h"}},
            {"spark_conf": {"spark.sql.catalog.lake.uri": "http://u:hunter2@h:8181"}},
        ],
    )
    def it_refuses_them_unseen(self, parameters):
        assert "hunter2" not in "\n".join(problems(**parameters))

    def it_refuses_a_reference_to_a_url_of_a_catalog_with_credentials_unseen(self, monkeypatch):
        monkeypatch.setenv("ICECDC_TEST_URL", "https://u:hunter2@h:8181")
        conf = {"spark.sql.catalog.lake.uri": "env:ICECDC_TEST_URL"}
        actual = config(catalog_properties={"type": "rest", "uri": "env:ICECDC_TEST_URL"}, spark_conf=conf)
        for resolve in (actual.resolved_catalog_properties, actual.resolved_spark_conf):
            with pytest.raises(ConfigError, match=r"must not carry credentials in a URL, as '.*uri' does") as caught:
                resolve()
            assert "hunter2" not in str(caught.value)
        given = {"spark.jars.repositories": "https://u:hunter2@h/maven"}
        assert config(spark_conf=given).resolved_spark_conf() == given

    @pytest.mark.parametrize(
        "properties",
        [
            {"s3.secret-access-key": "hunter2"}, {"s3.access-key-id": "hunter2"}, {"jdbc.password": "hunter2"},
            {"token": "hunter2"}, {"credential": "id:hunter2"}, {"adls.auth.shared-key.account.key": "hunter2"},
            {"uri": "jdbc:postgresql://u:hunter2@h/db"}, {"uri": "jdbc:postgresql://h/db?user=u&password=hunter2"},
        ],
    )  # fmt: skip
    def it_hides_plain_ones_of_the_catalog_wherever_a_config_is_shown(self, properties):
        actual = config(catalog_properties=properties, spark_conf=properties)
        shown = [repr(actual), str(actual), actual.model_dump(), actual.model_dump_json()]
        assert "hunter2" not in repr([*shown, actual.catalog_properties, dict(actual)])
        assert actual.resolved_catalog_properties() == actual.resolved_spark_conf() == properties
        copy = pickle.loads(pickle.dumps(actual))
        assert (copy, copy.resolved_catalog_properties()) == (actual, properties)
        assert actual.replace(index="u").resolved_catalog_properties() == properties

    def it_shows_references_and_resolves_them(self, monkeypatch):
        monkeypatch.setenv("ICECDC_TEST_SECRET", "hunter2€")
        names = ("opensearch_username", "opensearch_password")
        actual = config(
            **dict.fromkeys(names, "env:ICECDC_TEST_SECRET"), catalog_properties={"token": "env:ICECDC_TEST_SECRET"}
        )
        assert actual.resolved_catalog_properties() == {"token": "hunter2€"}
        connection = Connection.of(actual)
        client = connection.client()
        headers = client.transport.get_connection().headers
        client.close()
        assert headers["authorization"] == f"Basic {base64.b64encode('hunter2€:hunter2€'.encode()).decode()}"
        assert "hunter2" not in repr([actual, connection])
        assert "opensearch_password='env:ICECDC_TEST_SECRET'" in repr(actual)
        mixed = config(catalog_properties={"type": "rest", "token": "hunter2", "credential": "env:C"})
        assert "{'type': 'rest', 'token': '***', 'credential': 'env:C'}" in repr(mixed)


class DescribeSyncConfig:
    def it_is_checked_again_when_replaced_and_written_as_json(self):
        actual = config(columns="a")
        with pytest.raises(ConfigError, match="identifier_columns"):
            actual.replace(identifier_columns="b")
        assert SyncConfig(**json.loads(actual.model_dump_json())) == actual

    def it_finds_the_data_folder_and_accepts_a_warehouse_as_path_or_url(self, monkeypatch, tmp_path):
        default = Path.home() / ".local/share"
        for folder, base in (("", default), ("relative", default), (str(tmp_path), tmp_path)):
            monkeypatch.setenv("XDG_DATA_HOME", folder)
            assert config().warehouse_location == f"{base}/icecdc/warehouse"
        assert f"{tmp_path}/icecdc/catalog-" in embedded_catalog_properties("s3://bucket/w")["uri"]
        for folder, expected in (
            *(("s3://b/w", "s3://b/w"), ("/w", "/w"), ("file:///w", "/w"), ("file:/w", "/w"), (Path("/w"), "/w")),
            *(("~/w", str(Path.home() / "w")), ("w", str(Path.cwd() / "w")), ("dbfs:/w", "dbfs:/w")),
        ):
            assert config(warehouse=folder).warehouse_location == expected

    def it_cannot_be_a_dry_run_of_what_only_writes(self):
        for job, words in ((replay_dead_letters, "A replay writes"), (validate_table, "A repair writes")):
            with pytest.raises(ConfigError, match=rf"{words}.*\[dry_run=True\].*Remedy: "):
                job(None, config(dry_run=True, repair=True))


ENTRY = {"text": "title", "function": "models.small:embed", "model": "small-1", "dimension": "3"}


def embedded(entry=None, field="vector", **parameters):
    return SyncConfig(table="lake.shop.film", embed={field: {**ENTRY, **(entry or {})}}, **parameters)


class DescribeEmbed:
    def it_refuses_a_wrong_entry_and_field(self):
        functions = ("function", "a.b"), ("function", "a b:c")
        wrong = *functions, ("text", " "), ("dimension", 0), ("model", None), ("batch", 3)
        for entry, field in (*(({name: value}, "vector") for name, value in wrong), ({}, "a.vector"), ({}, " ")):
            with pytest.raises(ConfigError, match="embed"):
                embedded(entry, field)

    def it_keeps_vectors_beside_the_table_unless_another_is_named(self):
        assert split_table_name(embedded().embed_name) == ("lake", "shop", "icecdc_embeddings")
        assert split_table_name(embedded(embed_table="lake.a.b").embed_name) == ("lake", "a", "b")

    def it_maps_a_vector_over_the_mapping(self):
        method, title = {"method": {"engine": "lucene"}}, {"title": {"type": "keyword"}}
        for more, expected in (({}, {}), (method, method), ({"type": "float", "dimension": 4}, {})):
            found = embedded(mapping={**title, "vector": more}).full_mapping
            assert found == {**title, "vector": {"type": "knn_vector", "dimension": 3, **expected}}
        assert embedded(mapping={"vector": "text"}).full_mapping == {"vector": "text"}  # it is refused later
