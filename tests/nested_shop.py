"""Five tables whose rows make one document, and a second opinion on what the documents must be.

film f ── language l (twice: language_id, original_id)
       └─ actor a, through film_actor fa ── country c ── continent k
"""

from __future__ import annotations

from collections import defaultdict
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


class Shop:
    """The tables of one namespace, each of a kind of its own."""

    def __init__(self, spark: SparkSession, prefix: str, *properties: str) -> None:
        self.spark, self.prefix = spark, prefix
        for number, (name, columns) in enumerate(TABLES.items()):
            given = properties[number % len(properties)] if properties else "'format-version' = '2'"
            self.sql(f"CREATE TABLE {{{name}}} ({columns}) USING iceberg TBLPROPERTIES ({given})")

    def table(self, name: str) -> str:
        return f"lake.ns.{self.prefix}_{name}"

    def sql(self, statement: str) -> Any:
        """Run SQL in which ``{film}`` and the like stand for tables."""
        for name in TABLES:
            statement = statement.replace(f"{{{name}}}", self.table(name))
        return self.spark.sql(statement)

    def fill(self) -> None:
        for name, rows in {
            "film": "(1, 'Alien', 1, 2, ''), (2, 'Brazil', 1, null, ''), (3, 'Coma', 9, 1, ''), (4, 'Dune', 2, 2, '')",
            "language": "(1, 'English', 'x'), (2, 'French', 'x')",
            "film_actor": "(1, 10), (1, 11), (2, 10), (4, 12), (4, 10)",
            "actor": "(10, 'Ana', 100, 'x'), (11, 'Bo', 101, 'x'), (12, 'Cy', null, 'x')",
            "country": "(100, 'Spain', 'EU'), (101, 'Mali', 'AF')",
            "continent": "('EU', 'Europe'), ('AF', 'Africa')",
        }.items():
            self.sql(f"INSERT INTO {{{name}}} VALUES {rows}")

    def drop(self) -> None:
        for name in TABLES:
            self.sql(f"DROP TABLE IF EXISTS {{{name}}} PURGE")

    @property
    def spec(self) -> dict[str, Any]:
        """The parameters of the index."""
        language = {"table": self.table("language"), "as": "object", "select": ["language_id AS id", "name"]}
        continent = {"table": self.table("continent"), "alias": "k", "on": "k.code = c.continent", "select": ["k.name"]}
        country = {
            "table": self.table("country"),
            "alias": "c",
            "on": "c.country_id = a.country_id",
            "select": ["c.name"],
            "nest": {"continent": continent},
        }
        actors = {
            "table": self.table("actor"),
            "alias": "a",
            "through": {"table": self.table("film_actor"), "alias": "fa", "on": "fa.film_id = f.film_id"},
            "on": "a.actor_id = fa.actor_id",
            "as": "array",
            "type": "nested",
            "select": ["upper(a.name) AS name"],
            "row_filter": "a.name <> 'hidden'",
            "order_by": ["a.name DESC"],
            "nest": {"country": country},
        }
        return {
            "table": self.table("film"),
            "alias": "f",
            "identifier_columns": ["film_id"],
            "select": ["f.film_id", "f.title"],
            "row_filter": "shelf <> 'gone'",
            "nest": {
                "language": {**language, "alias": "l", "on": "l.language_id = f.language_id"},
                "original": {**language, "alias": "o", "on": "o.language_id = f.original_id"},
                "actors": actors,
            },
        }

    def documents(self) -> dict[str, dict[str, Any]]:
        """What the index has to hold, put together in Python from a plain SELECT of each table."""
        rows = {name: self.spark.table(self.table(name)).collect() for name in TABLES}
        languages = {row.language_id: {"id": row.language_id, "name": row.name} for row in rows["language"]}
        continents = {row.code: {"name": row.name} for row in rows["continent"]}
        countries = {
            row.country_id: {"name": row.name, "continent": continents.get(row.continent)} for row in rows["country"]
        }
        actors = {
            row.actor_id: (row.name, {"name": row.name.upper(), "country": countries.get(row.country_id)})
            for row in rows["actor"]
            if row.name != "hidden"
        }
        cast = defaultdict(list)
        for row in rows["film_actor"]:
            if row.actor_id in actors:
                cast[row.film_id].append(actors[row.actor_id])
        return {
            str(film.film_id): {
                "film_id": film.film_id,
                "title": film.title,
                "language": languages.get(film.language_id),
                "original": languages.get(film.original_id),
                "actors": [
                    actor
                    for _, actor in sorted(
                        sorted(cast[film.film_id], key=lambda each: _order(each[1])),
                        key=lambda each: each[0],
                        reverse=True,
                    )
                ],
            }
            for film in rows["film"]
            if film.shelf != "gone"
        }


def _order(entry: Any) -> Any:
    """Values in the order that Spark gives them: nulls first, structs field by field."""
    if entry is None:
        return (0,)
    return (1, *map(_order, entry.values())) if isinstance(entry, dict) else (1, entry)
