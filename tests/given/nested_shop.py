"""Five tables whose rows make one document, and a second opinion on what the documents must be.

film f ── language l (twice: language_id, original_id)
       └─ actor a, through film_actor fa ── country c ── continent k
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

from pyspark.sql import SparkSession

TABLES = {
    "film": "film_id INT, title STRING, language_id INT, original_id BIGINT, shelf STRING",
    "language": "language_id INT, name STRING, note STRING",
    "film_actor": "film_id INT, actor_id INT",
    "actor": "actor_id INT, name STRING, country_id INT, note STRING",
    "country": "country_id INT, name STRING, continent STRING",
    "continent": "code STRING, name STRING",
}
ROWS = {
    "film": "(1, 'Alien', 1, 2, ''), (2, 'Brazil', 1, null, ''), (3, 'Coma', 9, 1, ''), (4, 'Dune', 2, 2, '')",
    "language": "(1, 'English', 'x'), (2, 'French', 'x')",
    "film_actor": "(1, 10), (1, 11), (2, 10), (4, 12), (4, 10)",
    "actor": "(10, 'Ana', 100, 'x'), (11, 'Bo', 101, 'x'), (12, 'Cy', null, 'x')",
    "country": "(100, 'Spain', 'EU'), (101, 'Mali', 'AF')",
    "continent": "('EU', 'Europe'), ('AF', 'Africa')",
}

_MERGE_ON_READ = ", ".join(f"'write.{each}.mode' = 'merge-on-read'" for each in ("update", "delete", "merge"))
KINDS = (
    "'format-version' = '2'",
    f"'format-version' = '3', {_MERGE_ON_READ}",
    f"'format-version' = '2', {_MERGE_ON_READ}",
    "'format-version' = '1'",
    "'format-version' = '3'",
)

STATEMENTS = (
    "UPDATE {film} SET title = 'title {r}' WHERE film_id = {n}",
    "UPDATE {film} SET language_id = {m} WHERE film_id = {n}",
    "UPDATE {film} SET original_id = nullif({m}, 2), title = 't' WHERE film_id % 3 = {n} % 3",
    "UPDATE {film} SET shelf = if({r} % 2 = 0, 'gone', 'a') WHERE film_id = {n}",
    "DELETE FROM {film} WHERE film_id = {n}",
    "DELETE FROM {film} WHERE film_id = {n}; INSERT INTO {film} VALUES ({n}, 'new {r}', {m}, {r} % 4, 'a')",
    "UPDATE {film} SET film_id = film_id + 100 WHERE film_id = {n}",
    "INSERT INTO {film_actor} VALUES ({n}, 10 + {m})",
    "DELETE FROM {film_actor} WHERE film_id = {n}",
    "DELETE FROM {film_actor} WHERE actor_id = 10 + {m} AND film_id % 2 = {r} % 2",
    "UPDATE {film_actor} SET film_id = {n} WHERE actor_id = 10 + {m}",
    "UPDATE {film_actor} SET actor_id = 10 + {m} WHERE film_id = {n}",
    "UPDATE {actor} SET name = if({r} % 3 = 0, 'hidden', 'name {r}') WHERE actor_id = 10 + {m}",
    "UPDATE {actor} SET country_id = 100 + {r} % 3 WHERE actor_id = 10 + {m}",
    "UPDATE {actor} SET note = 'note {r}'",
    "DELETE FROM {actor} WHERE actor_id = 10 + {m}",
    "DELETE FROM {actor} WHERE actor_id = 10 + {m}; INSERT INTO {actor} VALUES (10 + {m}, 'new {r}', 101, 'x')",
    "UPDATE {country} SET name = 'name {r}' WHERE country_id = 100 + {r} % 3",
    "UPDATE {country} SET continent = if({r} % 2 = 0, 'EU', 'AF') WHERE country_id = 100 + {m} % 3",
    "DELETE FROM {country} WHERE country_id = 100 + {m} % 3",
    "DELETE FROM {country} WHERE country_id = 102; INSERT INTO {country} VALUES (102, 'new {r}', 'EU')",
    "UPDATE {continent} SET name = 'name {r}' WHERE code = 'EU'",
    "DELETE FROM {continent} WHERE code = 'AF'",
    "DELETE FROM {continent} WHERE code = 'AF'; INSERT INTO {continent} VALUES ('AF', 'Africa {r}')",
    "UPDATE {language} SET name = 'name {r}' WHERE language_id = {m}",
    "DELETE FROM {language} WHERE language_id = {m}",
    "DELETE FROM {language} WHERE language_id = {m}; INSERT INTO {language} VALUES ({m}, 'new {r}', 'x')",
)
"""What may happen to the rows, with random numbers; rows of nested objects stay unique."""


class Shop:
    """The tables of one namespace, each of a kind of its own; with films and languages alone it takes half the time."""

    def __init__(self, spark: SparkSession, prefix: str, *properties: str, tables: Sequence[str] = (*TABLES,)) -> None:
        self.spark, self.prefix, self.tables = spark, prefix, tables
        for number, name in enumerate(tables):
            given = properties[number % len(properties)] if properties else "'format-version' = '2'"
            self.sql(f"CREATE TABLE {{{name}}} ({TABLES[name]}) USING iceberg TBLPROPERTIES ({given})")
            self.sql(f"INSERT INTO {{{name}}} VALUES {ROWS[name]}")

    def table(self, name: str) -> str:
        return f"lake.ns.{self.prefix}_{name}"

    def sql(self, *statements: str) -> Any:
        named = [re.sub(r"\{([a-z_]+)\}", lambda name: self.table(name[1]), each) for each in statements]
        return [self.spark.sql(statement) for statement in named][-1]

    def change(self, chance: Random, statement: str = "") -> str:
        """Run a statement, any one by default, with random numbers; return it."""
        statement = statement or chance.choice(STATEMENTS)
        numbers = {"{n}": chance.randint(1, 6), "{m}": chance.randint(0, 3), "{r}": chance.randint(0, 99)}
        for text, value in numbers.items():
            statement = statement.replace(text, str(value))
        self.sql(*statement.split("; "))
        return statement

    def drop(self) -> None:
        for name in self.tables:
            self.sql(f"DROP TABLE IF EXISTS {{{name}}}")

    @property
    def spec(self) -> dict[str, Any]:
        language = {"table": self.table("language"), "as": "object", "select": ["language_id AS id", "name"]}
        continent = {"table": self.table("continent"), "alias": "k", "on": "k.code = c.continent", "select": ["k.name"]}
        country = {"table": self.table("country"), "alias": "c", "on": "c.country_id = a.country_id"}
        country |= {"select": ["c.name"], "nest": {"continent": continent}}
        actors = {
            "table": self.table("actor"),
            "alias": "a",
            "through": {"table": self.table("film_actor"), "alias": "fa", "on": "fa.film_id = f.film_id"},
            "on": "a.actor_id = fa.actor_id",
            "as": "array",
            "type": "nested",
            "select": ["upper(a.name) AS name"],
            "row_filter": "a.name <> 'hidden' AND NOT a.name RLIKE '^q{9}$'",
            "order_by": ["a.name DESC"],
            "nest": {"country": country},
        }
        return {
            "table": self.table("film"),
            "alias": "f",
            "identifier_columns": ["film_id"],
            "select": ["f.film_id", "f.title"],
            "row_filter": "f.shelf <> 'gone'",
            "nest": {
                "language": {**language, "alias": "l", "on": "l.language_id = f.language_id"},
                "original": {**language, "alias": "o", "on": "o.language_id = f.original_id"},
                **({"actors": actors} if "actor" in self.tables else {}),
            },
        }

    def documents(self) -> dict[str, dict[str, Any]]:
        """What the index has to hold, put together in Python from a plain SELECT of each table."""
        rows = {name: self.spark.table(self.table(name)).collect() if name in self.tables else [] for name in TABLES}
        languages = {row.language_id: {"id": row.language_id, "name": row.name} for row in rows["language"]}
        continents = {row.code: {"name": row.name} for row in rows["continent"]}
        countries, actors, cast = {}, {}, defaultdict(list)
        for row in rows["country"]:
            countries[row.country_id] = {"name": row.name, "continent": continents.get(row.continent)}
        for row in rows["actor"]:
            if row.name != "hidden":
                actor = {"name": row.name.upper(), "country": countries.get(row.country_id)}
                actors[row.actor_id] = (row.name, actor)
        for row in rows["film_actor"]:
            if row.actor_id in actors:
                cast[row.film_id].append(actors[row.actor_id])
        found = {}
        for film in rows["film"]:
            if film.shelf == "gone":
                continue
            entries = sorted(cast[film.film_id], key=lambda each: _order(each[1]))
            entries.sort(key=lambda each: each[0], reverse=True)
            found[str(film.film_id)] = {
                "film_id": film.film_id,
                "title": film.title,
                "language": languages.get(film.language_id),
                "original": languages.get(film.original_id),
                **({"actors": [actor for _, actor in entries]} if "actor" in self.tables else {}),
            }
        return found


def _order(entry: Any) -> Any:
    """Values in the order that Spark gives them: nulls first, structs field by field."""
    if entry is None:
        return (0,)
    return (1, *map(_order, entry.values())) if isinstance(entry, dict) else (1, entry)
