"""Vectors of texts: each text is embedded once, and a failing model stops a run before it writes anything."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import ConfigError, EmbeddingError, IndexConflictError, SchemaChangeError
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.explore.documents import look_up_document
from icecdc_core.explore.view import Part, open_view
from tests.servers.stub_model import DIMENSION, vector

LUCENE = {"method": {"name": "hnsw", "engine": "lucene", "space_type": "l2"}}


@pytest.fixture
def embed(name):
    """The parameters of a vector of an expression over the document."""
    entry = {"function": "tests.servers.stub_model:embed", "model": f"letters of {name}", "dimension": DIMENSION}
    return lambda text, **more: {
        "embed": {"vector": {"text": f"'{name} ' || {text}", **entry, **more}},
        "embed_table": f"lake.ns.{name}_vectors",
        "mapping": {"vector": LUCENE},
    }


@pytest.fixture
def config(make_config, embed, model, spark, name):
    yield make_config(**embed("title"))
    spark.sql(f"DROP TABLE IF EXISTS lake.ns.{name}_vectors")


@pytest.fixture
def films(sql):
    sql("CREATE TABLE {t} (id INT, title STRING, price INT) USING iceberg")
    sql("INSERT INTO {t} VALUES (1, 'Abba', 5), (2, 'Hedgehog', 5), (3, NULL, 5), (4, 'Abba', 6)")


@pytest.mark.usefixtures("films")
class DescribeVectorsOfTexts:
    def it_embeds_a_text_once(self, spark, sql, name, config, model, indexed, opensearch):
        with ThreadPoolExecutor() as pool:  # two indexes at once
            list(pool.map(partial(export_table, spark), (config, config.replace(index=f"{name}-2"))))
        vectors = config.embed_name
        # Of two vectors of a text, documents have the one that was there first, however long the other took.
        ((oldest,),) = sql(f"SELECT unix_micros(min(embedded_at)) / 1e6 FROM {vectors}").collect()
        assert oldest > (model.folder / "calls").stat().st_mtime
        assert model.calls() == ["Abba", "Hedgehog"]
        titles = {"1": "Abba", "2": "Hedgehog", "3": None, "4": "Abba"}
        expected = {key: title and vector(f"{name} {title}") for key, title in titles.items()}

        def vectors_of():
            return {key: document.get("vector") for key, document in indexed().items()}

        assert vectors_of() == expected

        sql(f"INSERT INTO {vectors} SELECT * FROM {vectors}")  # each is stored twice from here on
        sql("UPDATE {t} SET price = price + 1")
        sql("INSERT OVERWRITE {t} SELECT id, title, price + 1 FROM {t}", "DELETE FROM {t} WHERE id = 4")
        report = sync_changes(spark, config)
        assert (report.upserts, report.deletes) == (3, 1)
        export_table(spark, config)
        assert vectors_of() == {key: expected[key] for key in "123"}
        # The last text is not UTF-8.
        sql("INSERT INTO {t} VALUES (5, 'Cafe', 1), (6, 'Hedgehog', 1), (7, cast(X'4380' AS STRING), 1)")
        assert sync_changes(spark, config.replace(dry_run=True)).upserts == 3
        assert model.calls() == []

        sql("UPDATE {t} SET title = 'Decade' WHERE id = 2")
        sync_changes(spark, config)
        assert model.calls() == ["Cafe", "C\ufffd", "Decade"]
        found = validate_table(spark, config)
        assert (found.ok, found.source_rows) == (True, 6)
        query = {"knn": {"vector": {"vector": vector(f"{name} Decade"), "k": 1}}}
        hits = opensearch.search(index=name, body={"query": query})["hits"]["hits"]
        assert [hit["_source"]["title"] for hit in hits] == ["Decade"]
        view = open_view(spark, ExploreConfig(**config.model_dump(include=config.model_fields_set), document_id="5"))
        assert look_up_document(view, Part({}, [])).report["agrees"]

    def it_writes_nothing_when_the_model_fails(
        self, spark, sql, name, make_config, embed, config, model, indexed, opensearch
    ):
        (model.folder / "hangs").touch()
        with pytest.raises(EmbeddingError, match=r"embed\.vector .*longer than 1 sec"):
            export_table(spark, config.replace(embed_timeout_seconds=1))
        assert opensearch.indices.get(index=f"{config.index}*") == {}
        (model.folder / "hangs").unlink()
        export_table(spark, config)

        before, position = indexed(), PositionStore(opensearch, config).read()
        sql("INSERT INTO {t} VALUES (5, 'Cafe', 1)", "DELETE FROM {t} WHERE id = 1")
        (model.folder / "fails").touch()
        with pytest.raises(EmbeddingError, match=r"embed\.vector .*RuntimeError: the model has no memory"):
            sync_changes(spark, config)
        assert (indexed(), PositionStore(opensearch, config).read()) == (before, position)
        (model.folder / "fails").unlink()
        report = sync_changes(spark, config)
        found = indexed()
        assert (report.upserts, report.deletes, sorted(found)) == (1, 1, ["2", "3", "4", "5"])
        assert found["5"]["vector"] == vector(f"{name} Cafe")

        # No model is asked without need.
        opensearch.update(index=config.index, id="2", body={"doc": {"vector": [1] * DIMENSION}}, refresh="true")
        found = validate_table(spark, config.replace(repair=True))
        assert (found.ok, found.repaired, indexed()["2"]["vector"]) == (True, 1, vector(f"{name} Hedgehog"))
        sql(f"DELETE FROM {config.embed_name}")
        before = model.calls(), indexed()
        assert validate_table(spark, config).stale_ids == ["2", "4", "5"]
        with pytest.raises(EmbeddingError, match="run the export"):
            validate_table(spark, config.replace(repair=True))
        assert (model.calls(), indexed()) == ([], before[1])
        export_table(spark, config)  # the remedy
        assert (len(model.calls()), indexed()) == (3, before[1])

        # Another function is the same model; another model or text needs another index.
        moved = {"vector": {**config.embed["vector"], "function": "tests.servers.stub_model:Model"}}
        assert sync_changes(spark, config.replace(embed=moved)).strategy == "none"
        newer = make_config(**embed("title", model="newer"))
        with pytest.raises(SchemaChangeError, match="embed"):
            sync_changes(spark, newer)
        sync_changes(spark, newer.replace(on_schema_change="reexport"))
        assert model.calls() == ["Abba", "Cafe", "Hedgehog"]
        with pytest.raises(IndexConflictError, match="embed"):
            export_table(spark, config.replace(embed={}, mapping={}))

    def it_refuses_a_text_that_is_none_of_a_document_and_vectors_of_another_length(self, spark, config):
        for text, problem in (
            ("title || rand()", "is not deterministic"),
            ("price", "has a text of the type int"),
            ("no_field", "is not a selection of the document's fields"),
            ("explode(array(title))", "does not make one row"),
        ):
            wrong = {"vector": {**config.embed["vector"], "text": text}}
            with pytest.raises(ConfigError, match=rf"embed\.vector {problem}"):
                export_table(spark, config.replace(embed=wrong))
        with pytest.raises(ConfigError, match=r"embed\.Title is a field"):
            export_table(spark, config.replace(embed={"Title": config.embed["vector"]}))
        with pytest.raises(EmbeddingError, match="vectors of 8 numbers, not 3"):
            export_table(spark, config.replace(embed={"vector": {**config.embed["vector"], "dimension": 3}}))
        with pytest.raises(ConfigError) as refused:
            export_table(spark, config.replace(embed_table=config.table))
        assert refused.value.subject == "embed_table"


def it_embeds_texts_of_several_tables(spark, name, new_index, embed, model, indexed, make_shop):
    shop = make_shop(tables=("film", "language"))
    given = embed("concat_ws(' ', title, language.name)")
    # A `*` means the fields of the document, without vectors.
    count = "'all ' || array_size(json_object_keys(to_json(struct(*), map('ignoreNullFields', 'false'))))"
    fields = embed(count)["embed"]["vector"]
    given |= {"embed": {**given["embed"], "fields": fields}, "mapping": {"vector": LUCENE, "fields": LUCENE}}
    config = new_index(**shop.spec, **given)
    assert model.calls() == ["Alien English", "Brazil English", "Coma", "Dune French", "all 4"]
    # "Coma" has it too, but not in the text.
    shop.sql("UPDATE {language} SET name = 'Anglais' WHERE language_id = 1")
    assert sync_changes(spark, config).upserts == 3
    calls = model.calls()
    assert calls == ["Alien Anglais", "Brazil Anglais"]
    found = indexed()
    made = {"vector": None, "fields": None}
    assert {key: {**each, **made} for key, each in found.items()} == {
        key: {**each, **made} for key, each in shop.documents().items()
    }
    for each in found.values():
        text = " ".join(filter(None, (each["title"], (each["language"] or {}).get("name"))))
        assert [each["vector"], each["fields"]] == [vector(f"{name} {given}") for given in (text, "all 4")]
    spark.sql(f"DROP TABLE lake.ns.{name}_vectors")
