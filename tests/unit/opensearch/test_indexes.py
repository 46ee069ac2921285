"""The rules of physical indexes, of their settings and of the readers' alias, against a small HTTP server."""

from dataclasses import replace
from fnmatch import fnmatch
from types import SimpleNamespace

import pytest
from opensearchpy.exceptions import AuthorizationException
from pyspark.sql.types import LongType, StringType, StructField, StructType

from icecdc_core.commits.position import Batch, Position
from icecdc_core.config import SyncConfig
from icecdc_core.documents.spec import spec_digest
from icecdc_core.errors import ConfigError, IndexConflictError, IndexNotFoundError, SchemaChangeError
from icecdc_core.opensearch import index_settings, indexes
from icecdc_core.opensearch.client import Connection
from icecdc_core.runs.run import require_readable_index
from tests.servers.tiny_opensearch import error
from tests.simulation.simulated_opensearch import Index

SCHEMA = StructType().add("id", LongType()).add("name", StringType())
ONE, TWO = "t--000001", "t--000002"


@pytest.fixture
def config(server):
    return SyncConfig(table="lake.ns.t", index="t", opensearch_url=server.url, number_of_replicas=2)


@pytest.fixture
def client(config):
    opened = Connection.of(config).client()
    yield opened
    opened.close()


@pytest.fixture
def published(client, config):
    created = indexes.create_physical(client, config, ONE, SCHEMA, "the-run")
    indexes.publish_index(client, config, ONE)
    return created


class DescribeCreatePhysical:
    @pytest.mark.parametrize(("loading", "replicas", "refresh"), [(True, "0", "-1"), (False, "2", None)])
    def it_creates_an_index_with_explicit_mapping_and_write_alias_unless_another_run_did(
        self, server, client, config, loading, replicas, refresh
    ):
        first = indexes.create_physical(client, config, ONE, SCHEMA, "the-run", loading)
        found = server.indexes[ONE]
        assert (list(found.aliases), found.mappings["dynamic"]) == (["t--000001--WRITE"], "strict")
        assert (found.settings["number_of_replicas"], found.settings.get("refresh_interval")) == (replicas, refresh)
        meta = {"table": "lake.ns.t", "index": "t", "name": ONE, "run": "the-run", "spec": spec_digest({}, {})}
        assert found.mappings["_meta"]["icecdc"] == meta
        # The answer was lost.
        assert indexes.create_physical(client, config, ONE, SCHEMA, "the-run", loading) == first
        with pytest.raises(IndexConflictError, match="Another program has just created"):
            indexes.create_physical(client, config, ONE, SCHEMA, "another-run", loading)

    @pytest.mark.parametrize(
        ("part", "template", "message"),
        [
            ("mappings", {"_source": {"enabled": False}}, f"`_source`.*Remedy: .*{ONE}"),
            ("mappings", {"_routing": {"required": True}}, "`_routing`"), ("aliases", {"t": {}}, "the alias 't'"),
            ("settings", {"derived_source.enabled": True}, "derived_source"),
        ],
    )  # fmt: skip
    def it_refuses_and_deletes_an_index_that_a_template_makes_unusable(
        self, server, client, config, monkeypatch, part, template, message
    ):
        create = client.indices.create

        def with_template(index, body):
            given = {"settings": body["settings"]["index"]}
            return create(index=index, body={**body, **given, part: {**{**body, **given}[part], **template}})

        monkeypatch.setattr(client.indices, "create", with_template)
        with pytest.raises(ConfigError, match=message):
            indexes.create_physical(client, config, ONE, SCHEMA, "the-run")
        assert ONE not in server.indexes

    def it_skips_epochs_whose_index_exists(self, client, config):
        for epoch in (1, 2):
            indexes.create_physical(client, config, indexes.physical_index("t", epoch), SCHEMA, "the-run")
        assert (indexes.unused_epoch(client, "t", 1), indexes.unused_epoch(client, "t", 5)) == (3, 5)


def it_has_a_digest_of_its_settings_and_mapping(client, config):
    changed = {}, {}, {"number_of_shards": 5}, {"mapping": {"id": {"type": "keyword"}}}
    assert len({indexes.definition_digest(client, config.replace(**each), SCHEMA) for each in changed}) == 3


def it_names_indexes_with_suffixes_and_none_of_another_export(config):
    own, other = indexes.physical_index("t", 100_000), indexes.physical_index("t", 1_000_000)
    patterns = indexes.with_suffixes(config.replace(index_column="name"), own).split(",")
    names = (own, f"{own}-a", other, f"{other}-a")
    assert [each for each in names if any(fnmatch(each, pattern) for pattern in patterns)] == [own, f"{own}-a"]


def it_moves_an_alias_of_one_suffix_to_the_index_of_that_suffix(server, client, config, published):
    server.indexes[ONE].aliases["mine"] = {"is_write_index": True}
    for epoch in (2, 3):
        own = indexes.physical_index("t", epoch)
        names = [own, f"{own}-a", f"{own}-c"]
        for name in names:
            indexes.create_physical(client, config, name, SCHEMA, "the-run")
        indexes.publish_index(client, config, names[0], None, names[1:])
        server.indexes[f"{TWO}-a"].aliases.update({"of-a": {"filter": {}}, "of-b": {}})
        server.indexes[f"{TWO}-c"].aliases["of-b"] = {"filter": {}}
    found = {name[3:]: dict(sorted(index.aliases.items())) for name, index in server.indexes.items()}
    for name in names:
        del found[name[3:]][indexes.write_alias(name)], found[name[3:]]["t"]
    assert {name: found[name[3:]] for name in names} == {
        "t--000003": {"mine": {}},
        "t--000003-a": {"mine": {}, "of-a": {"filter": {}}, "of-b": {}},
        "t--000003-c": {"mine": {}, "of-b": {"filter": {}}},
    }


def it_refuses_only_pipelines_that_the_server_does_not_have(server, client, config):
    given = config.replace(settings={"default_pipeline": "p"})
    for answer in ((200, {"p": {}}), error(403, "denied"), error(404, "gone")):
        server.trouble = lambda method, path, answer=answer: answer if path.endswith("/p") else error(500, "not asked")
        index_settings.require_pipelines(client, config.replace(settings={"final_pipeline": "_none"}))
        if answer[0] != 404:
            index_settings.require_pipelines(client, given)
    with pytest.raises(ConfigError, match=r"no ingest pipeline 'p'.*PUT /_ingest/pipeline/p"):
        index_settings.require_pipelines(client, given)


class DescribeDeletion:
    def it_deletes_the_indexes_of_earlier_exports_and_no_others(self, server, client, config, published):
        indexes.create_physical(client, config, TWO, SCHEMA, "the-run")
        indexes.create_physical(client, config.replace(index="t--other"), "t--other--000001", SCHEMA, "the-run")
        server.indexes[f"{ONE}-copy"] = replace(server.indexes[ONE], aliases={})
        indexes.drop_leftovers(client, config, TWO, (), 2)
        assert ONE in server.indexes  # readers see it
        indexes.publish_index(client, config, TWO)
        server.trouble = lambda method, path: error(400, "snapshot_in_progress") if method == "DELETE" else None
        indexes.drop_leftovers(client, config, TWO, (), 2)
        assert ONE in server.indexes  # until a later run
        server.trouble = lambda method, path: error(403, "security") if method == "DELETE" else None
        with pytest.raises(AuthorizationException):
            indexes.drop_leftovers(client, config, TWO, (), 2)
        server.trouble = None
        server.indexes[ONE].mappings = {"_meta": {"icecdc": {"index": "t"}}}  # as an earlier build made it
        indexes.drop_leftovers(client, config, TWO, (), 2)
        assert sorted(server.indexes) == [f"{ONE}-copy", TWO, "t--other--000001"]
        indexes.create_physical(client, config, "t--000003", SCHEMA, "the-run")
        server.indexes["t--000003"].aliases.clear()  # a rollback left it, and was killed
        for epoch, is_there in ((3, True), (4, False)):  # the first is a stalled run
            indexes.drop_leftovers(client, config, TWO, (), epoch)
            assert ("t--000003" in server.indexes) == is_there


def it_adds_new_fields_and_names_one_that_has_another_type(server, client, config, published):
    indexes.create_physical(client, config, f"{ONE}-a", SCHEMA, "the-run")
    evolved = config.replace(index_column="name")
    indexes.evolve_mapping(client, evolved, ONE, StructType([*SCHEMA.fields, StructField("extra", LongType())]))
    for name, index in server.indexes.items():
        assert index.mappings["properties"]["extra"] == {"type": "long"}
        assert index.mappings["_meta"]["icecdc"]["name"] == name
    with pytest.raises(SchemaChangeError, match=r"mapper \[id\].*on_schema_change=reexport"):
        indexes.evolve_mapping(client, config, ONE, StructType().add("id", StringType()))


def it_refuses_an_index_of_that_name_and_an_alias_of_others(server, client, config):
    for aliases, name in (({}, "t"), ({"t": {}}, "others")):
        server.indexes = {name: Index(aliases=aliases)}
        with pytest.raises(IndexConflictError, match=rf"not made by icecdc \({name}\).*choose another index name"):
            indexes.require_own_alias(client, config)


OF_ONE = Position("t", "lake.ns.t", "u", physical_index=ONE)


class DescribeRequireReadableIndex:
    def it_accepts_the_index_that_readers_see_or_that_of_a_begun_export(self, client, config, published):
        require_readable_index(client, OF_ONE)
        indexes.require_same_index(client, config, {ONE: published})
        indexes.create_physical(client, config, TWO, SCHEMA, "the-run")
        indexes.publish_index(client, config, TWO)
        require_readable_index(client, replace(OF_ONE, batch=Batch("export", 2, None, 9, TWO)))

    def it_refuses_an_index_whose_aliases_somebody_changed(self, server, client, published):
        for aliases, kind, message in (
            ({}, IndexNotFoundError, r"alias 't' must show readers 't--000001'.*nothing.*POST /_aliases"),
            ({"t--000001--WRITE": {}}, IndexNotFoundError, "shows nothing"),
            ({"t": {}}, IndexNotFoundError, r"'t--000001' behind 't' is gone"),
            ({"t": {"filter": {}}, "t--000001--WRITE": {}}, IndexConflictError, "only a part"),
        ):
            server.indexes[ONE].aliases = aliases
            with pytest.raises(kind, match=message):
                require_readable_index(client, OF_ONE)

    def it_refuses_another_index_in_front_of_the_readers(self, server, client, published):
        del server.indexes[ONE].aliases["t"]
        for name, remedy in (("others", "make"), ("t", "delete the index t if nobody")):
            server.indexes = {ONE: server.indexes[ONE], name: Index(aliases={"t": {}})}
            with pytest.raises(IndexConflictError, match=rf"shows \['{name}'\].*Remedy: {remedy}"):
                require_readable_index(client, OF_ONE)

    def it_refuses_one_of_several_indexes_that_is_hidden_or_gone(self, server, client, config, published):
        suffixed = f"{ONE}-a"
        created = indexes.create_physical(client, config, suffixed, SCHEMA, "the-run")
        of_two = replace(OF_ONE, indexes={suffixed: created})
        with pytest.raises(IndexConflictError, match=f"Remedy: make the alias 't' point only to '{ONE}', '{suffixed}'"):
            require_readable_index(client, of_two)
        server.indexes[suffixed].aliases["t"] = {}
        require_readable_index(client, of_two)
        del server.indexes[suffixed]
        with pytest.raises(IndexNotFoundError, match=f"'{suffixed}' behind 't' is gone.*Remedy: run the export"):
            require_readable_index(client, of_two)

    def it_refuses_an_index_that_was_deleted_or_created_again(self, server, client, config, published):
        require_readable_index(client, replace(OF_ONE, index_uuid=published))
        server.indexes[ONE].settings["history"] = {"uuid": "of a restore"}
        with pytest.raises(IndexNotFoundError, match="created again"):
            require_readable_index(client, replace(OF_ONE, index_uuid=published))
        server.indexes[ONE].uuid = "another"
        with pytest.raises(IndexNotFoundError, match="deleted or created again"):
            indexes.require_same_index(client, config, {ONE: published})
        server.indexes.clear()
        assert indexes.index_uuid(client, ONE) == ""
        with pytest.raises(IndexNotFoundError, match="'t--000001' behind 't' is gone"):
            require_readable_index(client, OF_ONE)


class DescribeCheckSettings:
    def it_says_why_a_setting_is_refused(self):
        for settings, reason in (
            *(({"index.gc_deletes": value}, "could bring back") for value in ("59m", "3599s", "60000ms", "soon")),
            ({"translog": {"durability": "ASYNC"}}, "lose documents"),
            ({"max_result_window": 100}, "reads 5000 documents"),
            ({"derived_source.enabled": True}, "_source"),
            ({"knn.derived_source.enabled": "true"}, "vectors in `_source`"),
        ):
            with pytest.raises(ConfigError, match=reason) as raised:
                index_settings.check_settings(settings)
            assert (raised.value.subject, bool(raised.value.remedy)) == ("settings", True)
            for value in ("1h", "60m", "3600000ms"):
                index_settings.check_settings({"gc_deletes": value, "translog.durability": "request", "knn": True})


class DescribeNewIndexSettings:
    def it_takes_the_settings_of_the_user_over_ours(self):
        given = {"index": {"number_of_shards": 5, "gc_deletes": "2h"}, "mapping.total_fields.limit": 9, "codec": "zstd"}
        config = SyncConfig(table="lake.ns.t", settings=given, number_of_replicas=2)
        found = index_settings.new_index_settings(config, {"mapping.total_fields.limit": 2000}, False)
        ours = {"number_of_replicas": 2, "translog.durability": "request"}
        theirs = {"number_of_shards": 5, "gc_deletes": "2h", "mapping.total_fields.limit": 9, "codec": "zstd"}
        assert found == ours | theirs

    def it_prepares_an_index_for_vectors(self):
        for field_type, version, expected in (
            ("keyword", "3.1.0", {}),
            ("knn_vector", "2.19.1", {"knn": True}),
            ("knn_vector", "3.1.0", {"knn": True, "knn.derived_source.enabled": False}),
        ):
            given = SyncConfig(table="lake.ns.t", mapping={"v": {"properties": {"w": {"type": field_type}}}})
            client = SimpleNamespace(info=lambda version=version: {"version": {"number": version}})
            assert index_settings.vector_settings(client, given) == expected
