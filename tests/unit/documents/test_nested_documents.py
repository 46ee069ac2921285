"""The two transforms of documents of several tables, as truth tables."""

import json

import pytest
from pyspark.sql import functions as F

from icecdc_core.documents import affected_roots, assemble
from icecdc_core.errors import ConfigError, IdentifierColumnsError

FILM, LANGUAGE, CAST, ACTOR = (f"lake.shop.{name}" for name in ("`film`", "language", "film_actor", "actor"))
SCHEMAS = {
    FILM: "film_id INT, title STRING, language_id INT",
    LANGUAGE: "language_id BIGINT, name STRING",
    CAST: "film_id INT, actor_id INT",
    ACTOR: "actor_id INT, name STRING, agent INT",
}
ROWS = {
    FILM: [(1, "Alien", 1), (2, "Brazil", None), (3, "Coma", 9)],
    LANGUAGE: [(1, "English"), (2, "French")],
    CAST: [(1, 10), (1, 11), (2, 10), (None, 11)],
    ACTOR: [(10, "Ana", 11), (11, "Bo", None)],
}
LANGUAGES = {"table": LANGUAGE, "alias": "l", "on": "l.language_id = f.language_id", "as": "object"}
ACTORS = {
    "table": ACTOR, "alias": "a", "through": {"table": CAST, "alias": "fa", "on": "fa.film_id = f.film_id"},
    "on": "a.actor_id = fa.actor_id", "as": "array", "select": ["a.name"], "order_by": "a.actor_id",
}  # fmt: skip
SPEC = {
    "table": FILM,
    "alias": "f",
    "identifier_columns": ["film_id"],
    "select": ["f.film_id"],
    "nest": {"language": LANGUAGES, "actors": ACTORS},
}


@pytest.fixture
def frames(spark):
    return lambda given=ROWS: {
        table: spark.createDataFrame({**ROWS, **given}[table], schema) for table, schema in SCHEMAS.items()
    }


def documents(frame):
    texts = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
    return [json.loads(row[0]) for row in texts.collect()]


def it_finds_the_roots_that_raw_changes_of_a_filtered_table_affect(spark, frames):
    spec = {**SPEC, "row_filter": "f.film_id > 1", "nest": {"actors": {**ACTORS, "row_filter": "name = 'Ana'"}}}
    rows = [(10, "Ana", 1, "DELETE", 0, 7), (10, "Anna", 1, "INSERT", 0, 7), (11, "Bo", None, "DELETE", 0, 7)]
    more = "_change_type STRING, _change_ordinal INT, _commit_snapshot_id BIGINT"
    given = {ACTOR: spark.createDataFrame(rows, f"{SCHEMAS[ACTOR]}, {more}")}
    assert [row.film_id for row in affected_roots(spec, given, frames(), frames()).collect()] == [2]
    assert affected_roots(spec, {}, frames(), frames()).count() == 0


class DescribeAssembledDocuments:
    def it_makes_those_of_some_roots(self, spark, frames):
        roots = spark.createDataFrame([(2,), (2,), (7,)], "film_id INT")
        assert [each["film_id"] for each in documents(assemble(SPEC, frames(), roots))] == [2]

    def it_orders_arrays_and_compares_keys_as_a_join_does(self, frames):
        arrays = {
            "by_name": ({"order_by": "name DESC"}, ["Bo", "Ana", "Ana"]),
            "by_length": ({"order_by": ["length(name) DESC", "name"]}, ["Ana", "Ana", "Bo"]),
            "by_all": ({"order_by": []}, ["Ana", "Ana", "Bo"]),
            # Values that Spark does not compare exactly.
            **{
                name: ({"select": [value, "name"], "order_by": "agent IS NULL DESC"}, ["Bo", "Ana", "Ana"])
                for name, value in {"map": "map('n', name) AS m", "double": "CAST(actor_id AS DOUBLE) AS d"}.items()
            },
        }
        # Whatever order a table has the fields of a struct in.
        for pair in ("struct(-actor_id AS y, actor_id AS x)", "struct(actor_id AS x, -actor_id AS y)"):
            for value in (pair, f"array({pair})", f"map('k', {pair})"):
                arrays[f"{len(arrays)}"] = ({"select": [f"{value} AS a", "name"], "order_by": []}, ["Ana", "Ana", "Bo"])
        equal = {"select": ["if(actor_id = 10, 'a', 'A') COLLATE UTF8_LCASE AS name"], "order_by": []}
        arrays["collated"] = (equal, ["A", "a", "a"])
        links = {
            "cast": "CAST(l.language_id AS STRING) = f.language_id",
            "collated_link": "l.name COLLATE UTF8_LCASE = if(f.title = 'Alien', 'ENGLISH', '')",
            "part": "EXTRACT(DAY FROM make_date(2026, 1, int(l.language_id))) = f.film_id",
        }
        nest = {name: {**ACTORS, **given} for name, (given, _) in arrays.items()}
        nest |= {name: {**LANGUAGES, "on": link} for name, link in links.items()}
        rows = frames({CAST: [(1, 11), (1, 10), (1, 10)]})
        (film,) = documents(assemble({**SPEC, "nest": nest}, rows).where("film_id = 1"))
        found = {name: [each["name"] for each in film[name]] for name in arrays}
        assert found == {name: expected for name, (_, expected) in arrays.items()}
        assert {name: film[name]["name"] for name in links} == dict.fromkeys(links, "English")

    def it_ignores_several_rows_for_an_object_that_no_document_has(self, frames):
        cast = {"table": CAST, "alias": "c", "on": "c.film_id = f.film_id", "as": "array"}
        actor = {"table": ACTOR, "alias": "a", "on": "a.actor_id = c.actor_id", "select": ["a.name"]}
        spec = {**SPEC, "row_filter": "f.title = 'Brazil'", "nest": {"cast": {**cast, "nest": {"actor": actor}}}}
        rows = frames({ACTOR: [(10, "Ana", None), (11, "Bo", None), (11, "Bob", None)]})
        (film,) = documents(assemble(spec, rows))
        assert [each["actor"]["name"] for each in film["cast"]] == ["Ana"]


class DescribeSpecs:
    @pytest.mark.parametrize(
        ("entry", "problem"),
        [
            ({"on": "l.language_id > f.language_id"}, "nest.language must be equalities of l and f"),
            ({"on": "l.nothing = f.language_id"}, "l`.`nothing"),
            ({"on": "rand() = f.language_id"}, "eterministic"),
            ({"alias": "F"}, "has the name 'F', as the table around it"),
            ({"select": ["current_date() AS today"]}, "nest.language is not deterministic"),
            ({"select": ["explode(array(1)) AS many"]}, "nest.language does not make one row of each row"),
            ({"row_filter": "rand() > 0"}, "nest.language row_filter is not deterministic"),
            ({"table": "film"}, "language.table: must have three parts"),
        ],
    )
    def it_refuses_what_cannot_be_kept_right(self, frames, entry, problem):
        spec = {**SPEC, "nest": {"language": {**LANGUAGES, **entry}}}
        with pytest.raises(ConfigError) as refused:
            assemble(spec, frames())
        assert problem in str(refused.value)
        assert "nest" in str(refused.value)

    def it_refuses_a_field_twice_a_name_that_no_field_can_have_and_a_fourth_level(self, frames):
        with pytest.raises(ConfigError, match=r"nest.title is a field of select, too"):
            assemble({**SPEC, "select": ["*"], "nest": {"title": LANGUAGES}}, frames())
        for names, words in (("aA", "has the field 'a', which is there twice"), (["a.b"], "is wrong at a.b")):
            with pytest.raises(ConfigError, match=words):
                assemble({**SPEC, "nest": dict.fromkeys(names, LANGUAGES)}, frames())
        deep = LANGUAGES
        for level in range(3):
            deep = {**LANGUAGES, "alias": f"l{level}", "nest": {"more": deep}}
        with pytest.raises(ConfigError, match=r"'language.more.more.more', which is below the level 3"):
            assemble({**SPEC, "nest": {"language": deep}}, frames())

    def it_needs_identifier_columns_and_every_table(self, frames):
        with pytest.raises(IdentifierColumnsError):
            assemble({**SPEC, "identifier_columns": []}, frames())
        with pytest.raises(ConfigError, match=CAST):
            assemble(SPEC, {FILM: frames()[FILM], LANGUAGE: frames()[LANGUAGE], ACTOR: frames()[ACTOR]})
