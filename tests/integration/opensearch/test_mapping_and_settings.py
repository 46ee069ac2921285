"""Mappings, settings and pipelines of users against a real server: documents, queries and the validation."""

import json

import pytest

from icecdc_core import export_table, replay_dead_letters, sync_changes, validate_table
from icecdc_core.errors import ConfigError
from icecdc_core.jobs.setup import check_setup
from icecdc_core.opensearch.checksums import WHOLE, part_of_index


@pytest.fixture
def found(opensearch, name):
    def search(query, index=name):
        opensearch.indices.refresh(index=index)
        return sorted(hit["_id"] for hit in opensearch.search(index=index, body={"query": query})["hits"]["hits"])

    return search


@pytest.fixture
def pipeline(opensearch, name):
    created = []

    def create(*processors, suffix="pipeline"):
        created.append(f"{name}-{suffix}")
        opensearch.ingest.put_pipeline(id=created[-1], body={"processors": list(processors)})
        return created[-1]

    yield create
    opensearch.indices.delete(index=f"{name}--*")  # no pipeline is deleted while an index names it
    for each in created:
        opensearch.ingest.delete_pipeline(id=each)


class DescribeFieldTypes:
    TYPES = """
        id BIGINT, title STRING, code STRING, spot STRUCT<lat: DECIMAL(9, 6), lon: DECIMAL(9, 6)>, pair ARRAY<DOUBLE>,
        people ARRAY<STRUCT<name: STRING, age: INT>>, days STRUCT<gte: DATE, lt: TIMESTAMP>, big DECIMAL(20, 0),
        scores MAP<STRING, FLOAT>, at TIMESTAMP, blob BINARY
    """
    ROWS = """
        (1, 'Running shoes', 'AbC', named_struct('lat', 48.1, 'lon', 11.5), array(11.5D, 48.1D),
         array(named_struct('name', 'Ann', 'age', 30), named_struct('name', 'Bob', 'age', 40)),
         named_struct('gte', date'2026-01-01', 'lt', timestamp'2026-02-01 00:00:00'), 18446744073709551615,
         map('red', 0.5F, 'blue', 2.5F), timestamp'2026-01-31 12:00:00.123456', X'00FF'),
        (2, 'A red dress', 'xyz', null, null, array(), null, null, map(), null, null)
    """
    MAPPING = {  # noqa: RUF012
        "title": {"type": "text", "analyzer": "english", "fields": {"raw": {"type": "keyword"}}, "copy_to": "all"},
        "code": {"type": "keyword", "normalizer": "lower", "copy_to": ["all"]},
        "all": {"type": "text"},
        "spot": {"type": "geo_point"},
        "pair": {"type": "geo_point"},
        "people": {"type": "nested", "properties": {"name": {"type": "keyword"}}},
        "people.age": {"type": "short"},
        "days": {"type": "date_range"},
        "big": {"type": "unsigned_long"},
        "scores": {"type": "rank_features"},
        "at": {"type": "date_nanos"},
        "blob": {"doc_values": True},
    }
    NORMALIZER = {"analysis": {"normalizer": {"lower": {"type": "custom", "filter": ["lowercase"]}}}}  # noqa: RUF012

    def it_finds_documents_by_every_field_and_validates_them(self, spark, sql, make_config, indexed, found):
        sql(f"CREATE TABLE {{t}} ({self.TYPES}) USING iceberg", f"INSERT INTO {{t}} VALUES {self.ROWS}")
        config = make_config(mapping=json.dumps(self.MAPPING), settings=self.NORMALIZER)
        report = export_table(spark, config)
        sql("UPDATE {t} SET code = 'ABC' WHERE id = 1")
        sync_changes(spark, config)
        documents = indexed()
        shown = report.upserts, documents["1"]["spot"], documents["1"]["code"], documents["2"].keys()
        assert shown == (2, {"lat": "48.100000", "lon": "11.500000"}, "ABC", documents["1"].keys())
        ages = {"bool": {"must": [{"term": {"people.name": "Ann"}}, {"range": {"people.age": {"gt": 35}}}]}}
        near, munich = {"distance": "10km"}, {"lat": 48.1, "lon": 11.5}
        queries = [
            ({"match": {"title": "run"}}, ["1"]), ({"term": {"title.raw": "Running shoes"}}, ["1"]),
            ({"term": {"code": "aBc"}}, ["1"]), ({"match": {"all": "shoes xyz"}}, ["1", "2"]),
            ({"nested": {"path": "people", "query": ages}}, []),
            *(({"geo_distance": {**near, field: munich}}, ["1"]) for field in ("spot", "pair")),
            ({"nested": {"path": "people", "query": {"term": {"people.age": 30}}}}, ["1"]),
            ({"range": {"days": {"gte": "2026-01-31", "lte": "2026-01-31", "relation": "contains"}}}, ["1"]),
            ({"term": {"big": "18446744073709551615"}}, ["1"]), ({"rank_feature": {"field": "scores.red"}}, ["1"]),
            ({"range": {"at": {"gte": "2026-01-31T12:00:00.123456Z", "lte": "2026-01-31T12:00:00.123456Z"}}}, ["1"]),
        ]  # fmt: skip
        assert [found(query) for query, _ in queries] == [ids for _, ids in queries]
        assert validate_table(spark, config).ok


class DescribeSettings:
    def it_reads_documents_without_the_search_pipeline_of_readers(self, opensearch, name):
        opensearch.index(index=name, id="1", body={}, refresh=True)
        pit = opensearch.create_pit(index=name, params={"keep_alive": "1m"})["pit_id"]
        opensearch.indices.put_settings(index=name, body={"index.search.default_pipeline": "not_there"})
        found = opensearch.search(body=part_of_index(pit), params=WHOLE)["hits"]["hits"]
        opensearch.indices.delete(index=name)
        assert [hit["_id"] for hit in found] == ["1"]

    def it_overrides_a_template_that_could_lose_documents(self, spark, sql, make_config, opensearch, name):
        index = {"gc_deletes": "1m", "translog": {"durability": "async"}, "refresh_interval": "9s"}
        template = {"settings": {"index": {**index, "codec": "best_compression"}}, "aliases": {f"{name}-added": {}}}
        body = {"index_patterns": [f"{name}--*"], "priority": 900, "template": template}
        opensearch.indices.put_index_template(name=name, body=body)
        try:
            sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
            export_table(spark, make_config())
            (entry,) = opensearch.indices.get_settings(index=name).values()
            settings = entry["settings"]["index"]
            names = ("gc_deletes", "translog", "codec", "refresh_interval", "number_of_replicas")
            kept = [settings.get(each) for each in names]
            assert kept == ["1h", {"durability": "request"}, "best_compression", None, "1"]
            assert opensearch.indices.exists_alias(name=f"{name}-added")
        finally:
            opensearch.indices.delete_index_template(name=name)

    def it_moves_the_aliases_of_users_to_the_index_of_the_next_export(self, spark, new_index, opensearch, name, found):
        config = new_index("CREATE TABLE {t} (id BIGINT) USING iceberg", "INSERT INTO {t} VALUES (1), (2)")
        opensearch.indices.put_alias(index=f"{name}--*", name=f"{name}-one", body={"filter": {"term": {"id": 1}}})
        opensearch.indices.put_alias(index=f"{name}--*", name=f"{name}-routed", body={"routing": "x"})
        before = opensearch.indices.get_alias(name=f"{name}-*")
        report = export_table(spark, config)
        after = opensearch.indices.get_alias(name=f"{name}-one,{name}-routed")
        ((physical, entry),) = after.items()
        routed = {"index_routing": "x", "search_routing": "x"}
        assert entry["aliases"] == {f"{name}-one": {"filter": {"term": {"id": 1}}}, f"{name}-routed": routed}
        assert found({"match_all": {}}, f"{name}-one") == ["1"]
        assert (physical in before, report.upserts) == (False, 2)


class DescribePipelines:
    TABLE = "CREATE TABLE {t} (id BIGINT, v STRING, f FLOAT, place STRUCT<city: STRING>) USING iceberg"
    ROWS = "INSERT INTO {t} VALUES (1, 'a', 1.1F, named_struct('city', 'Rome')), (2, 'b', null, null)"

    def it_validates_without_the_fields_of_the_pipeline(self, spark, sql, new_index, indexed, found, pipeline):
        made = pipeline(
            {"set": {"field": "tags.source", "value": "icecdc"}},
            {"set": {"field": "place.country", "value": "IT", "if": "ctx.place != null"}},
        )
        final = pipeline({"set": {"field": "shout", "value": "{{v}}!"}}, suffix="final")
        names, shouts = ["tags.source", "place.country", "shout"], {"term": {"shout": "c!"}}
        mapping = {each: {"type": "keyword"} for each in names}
        settings = {"default_pipeline": made, "final_pipeline": final}
        config = new_index(self.TABLE, self.ROWS, mapping=mapping, settings=settings, pipeline_fields=names)
        exported = indexed()
        sql("UPDATE {t} SET v = 'c' WHERE id = 2", "DELETE FROM {t} WHERE id = 1")
        report = sync_changes(spark, config)
        place, tags = {"city": "Rome", "country": "IT"}, {"source": "icecdc"}
        assert exported["1"] == {"id": 1, "v": "a", "f": 1.1, "place": place, "tags": tags, "shout": "a!"}
        assert (report.upserts, report.deletes, sorted(indexed()), found(shouts)) == (1, 1, ["2"], ["2"])
        assert validate_table(spark, config).ok

    def it_finds_documents_whose_columns_a_pipeline_changed(self, spark, new_index, pipeline):
        made = pipeline({"rename": {"field": "v", "target_field": "w"}})
        mapping, settings = {"w": {"type": "keyword"}}, {"default_pipeline": made}
        config = new_index(self.TABLE, self.ROWS, mapping=mapping, settings=settings, pipeline_fields=["w"])
        report = validate_table(spark, config)
        assert (report.ok, report.stale, report.stale_ids) == (False, 2, ["1", "2"])

    def it_refuses_to_repair_replay_or_set_up_with_a_pipeline_that_is_gone(self, spark, sql, make_config):
        sql(self.TABLE)
        config = make_config(settings={"default_pipeline": "gone"}, repair=True)
        for job in (replay_dead_letters, validate_table):
            with pytest.raises(ConfigError, match="no ingest pipeline 'gone'"):
                job(spark, config)
        assert "no ingest pipeline 'gone'" in check_setup(spark, config).problems[0]
