"""Every parameter of the ingest: what it takes, and what it says of what it does not take."""

import pytest

from icecdc_core.errors import ConfigError
from icecdc_core.ingest import IngestConfig

GIVEN = {"job": "orders", "bootstrap_servers": "127.0.0.1:9092", "topics": "a,b", "table": "lake.shop.orders"}


def make(**overrides):
    return IngestConfig(**{**GIVEN, **overrides})


def it_takes_texts_as_a_job_passes_them_and_derives_its_namespace_and_own_tables():
    config = make(auto_create="true", max_records_per_batch="10", partition_by="days(ts), bucket(16, id),region")
    actual = (config.topics, config.auto_create, config.max_records_per_batch, config.partition_by)
    assert actual == (["a", "b"], True, 10, ["days(ts)", "bucket(16, id)", "region"])
    assert config.quoted_commit_log == "`lake`.`shop`.`icecdc_ingest_log`"
    assert config.quoted_dead_letters == "`lake`.`shop`.`icecdc_ingest_dead_letters`"
    assert config.replace(table="lake.store.orders").namespace == "`lake`.`store`"
    assert make(namespace="lake.own").replace(table="lake.store.orders").namespace == "lake.own"


def it_gives_a_table_the_parameters_of_the_first_entry_that_matches_its_name():
    entries = {"orders": {"mode": "upsert"}, "lake.shop.*": {"evolve_schema": "true"}, "*": {"target_file_bytes": 5}}
    config = make(tables=entries, sort_columns="id")
    actual = [config.for_table(name) for name in ("`lake`.`shop`.`orders`", "lake.shop.films", "lake.store.films")]
    expected = [config.replace(tables={}, **entry) for entry in entries.values()]
    assert actual == expected
    assert [each.sort_columns for each in actual] == [["id"]] * 3
    assert make().for_table("lake.shop.films") == make()


def it_shows_no_secret(monkeypatch):
    monkeypatch.setenv("KAFKA_LOGIN", "very secret")
    config = make(kafka_options={"kafka.sasl.jaas.config": "env:KAFKA_LOGIN", "ssl.key.password": "plain"})
    assert config.client_properties["sasl.jaas.config"] == "very secret"
    assert "very secret" not in repr(config)
    assert "plain" not in repr(config) + config.model_dump_json()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topics": ""}, "topics: give either topics or topic_pattern"),
        ({"starting_offsets": "7"}, "starting_offsets: is a number"),
        ({"partition_by": "["}, "partition_by: is not a JSON array: Expecting value"),
        ({"kafka_options": {"group.id": "x"}}, "sets group.id"),
        ({"namespace": "shop"}, "namespace: must begin with catalog.namespace"),
        ({"route_by": "regex"}, "routes: missing for route_by='regex'"),
        ({"route_by": "topic"}, "table: given together with route_by='topic'"),
        ({"routes": {"lake.a.b": "x"}}, "routes: given together with route_by='table'"),
        ({"route_by": "regex", "table": "", "routes": {"lake.a.b": ""}}, "has no expression for lake.a.b"),
        (
            {"route_by": "regex", "table": "", "routes": {"lake.a.B": "x", "lake.a.b": "y"}},
            "routes: two tables differ only in case",
        ),
        ({"ordering_column": "ts"}, "ordering_column: given for mode='append'"),
        ({"mode": "upsert", "deletes": "soft"}, "deleted_column: it and deletes=soft"),
        ({"deletes": "soft", "deleted_column": "gone"}, "deletes: 'soft' given for mode='append'"),
        ({"mode": "history", "on_truncate": "apply"}, "on_truncate: 'apply' given for a table that keeps"),
        ({"route_by": "expression", "table": ""}, "route: missing for route_by='expression'"),
        ({"route": "topic"}, "route: given together with route_by='table'"),
        ({"operation": "op", "op_field": "op"}, "operation: given together with op_field"),
        ({"op_field": "__op", "format": "dms"}, "op_field: given for format='dms'"),
        ({"schema_registry_password": "env:P"}, "schema_registry_username: missing"),
        ({"schema_registry_password": "hunter2"}, "schema_registry_password: string should match"),
        ({"dead_letter_table": "other.a.b"}, "the tables are in several catalogs: lake, other"),
        ({"table": "lake.shop.ICECDC_ingest_log"}, "the tables of records must differ"),
        ({"commit_log_table": "lake.a.b", "dead_letter_table": "lake.a.`b`"}, "the tables of records must differ"),
        ({"format": "AVRO"}, "schema_registry_url: missing for format='avro'"),
        ({"job": "a'b"}, "job: string should match pattern"),
        ({"starting_offsets": '{"a":{"0":-2}}'}, "starting_offsets: is not JSON of offsets"),
        ({"epoch_units": {"at": "hours"}}, "epoch_units: has another unit for at"),
        ({"coercion": "loose"}, "coercion: "),
        ({"tables": {"orders": "upsert"}}, "tables: has an entry that is no object of parameters"),
        ({"tables": {"orders": {"topics": "a"}}}, "tables.orders.topics: is of no single table"),
        ({"tables": {"orders": {"ordering_column": "ts"}}}, "tables.orders.ordering_column: given for mode='append'"),
    ],
)
def it_refuses_with_the_reason(given, reason):
    with pytest.raises(ConfigError) as caught:
        make(**given)
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)
