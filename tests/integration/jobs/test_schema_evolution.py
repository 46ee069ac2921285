"""Schema evolution against real services: within one batch and between two, the index is what the table says now."""

import json

import pytest

from icecdc_core import sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import SchemaChangeError
from icecdc_core.jobs import sync
from tests.given.broken_runs import killed_at
from tests.histories.proof import without_nulls

pytestmark = pytest.mark.usefixtures("sql")

CREATE = """CREATE TABLE {{t}} (id INT NOT NULL, name STRING NOT NULL, small INT, ratio FLOAT, price DECIMAL(9, 2),
place STRUCT<city: STRING, zip: INT>, places ARRAY<STRUCT<city: STRING>>, named MAP<STRING, STRUCT<city: STRING>>,
spare STRING) USING iceberg TBLPROPERTIES ('format-version' = '{version}', 'write.update.mode' = '{mode}',
'write.delete.mode' = '{mode}', 'write.merge.mode' = '{mode}')"""
FILL = """INSERT INTO {t} SELECT CAST(id AS INT), concat('n', id), CAST(id AS INT), CAST(id / 4 AS FLOAT),
CAST(id AS DECIMAL(9, 2)), named_struct('city', 'c', 'zip', 1), array(named_struct('city', 'd')),
map('k', named_struct('city', 'e')), concat('s', id) FROM range(6)"""


@pytest.fixture
def alter(sql, spark, java_table):
    """Change the schema: by SQL, or by a function of Iceberg's own UpdateSchema, its types and its literals."""

    def run(change):
        if isinstance(change, str):
            sql(f"ALTER TABLE {{t}} {change}")
            return
        iceberg = spark._jvm.org.apache.iceberg
        change(java_table().updateSchema(), iceberg.types.Types, iceberg.expressions.Literal.of).commit()
        sql("REFRESH TABLE {t}")

    return run


@pytest.fixture
def table(sql):
    def read():
        return {str(row["id"]): document(row.asDict(recursive=True)) for row in sql("SELECT * FROM {t}").collect()}

    return read


def document(value):
    return json.loads(json.dumps(value, default=str))


@pytest.fixture
def position(opensearch, make_config):
    return PositionStore(opensearch, make_config()).read


# Done to one table, one after another, with an update that makes use of it.
FOLLOWED = (
    (["ADD COLUMN note STRING"], "note = 'x'"),
    (["ADD COLUMN first BIGINT FIRST"], "first = 7"),
    (["ADD COLUMN place.street STRING"], "place.street = 'x'"),
    (["ADD COLUMN places.element.zip INT"], "places = array(named_struct('city', 'x', 'zip', 9))"),
    (["ADD COLUMN named.value.zip INT"], "named = map('l', named_struct('city', 'x', 'zip', 9))"),
    (["ADD COLUMN brief STRING", "DROP COLUMN brief"], ""),
    (["ADD COLUMN short STRING", "DROP COLUMN short", "ADD COLUMN short INT"], "short = 7"),
    (["ALTER COLUMN spare FIRST", "ALTER COLUMN place.zip FIRST"], ""),
    (["ALTER COLUMN name DROP NOT NULL", "ALTER COLUMN spare COMMENT 'words'"], "name = NULL"),
    (["ALTER COLUMN price TYPE DECIMAL(38, 2)"], "price = 123456789012345678901234567890123456.99"),
)

# Changes, and what is said of each; the second one comes after an export.
RENAMED = (
    ("RENAME COLUMN name TO title", "column 'name' was renamed to 'title'"),
    ("RENAME COLUMN place.city TO town", "column 'place.city' was renamed to 'town'"),
)
ADDED_WITH_A_DEFAULT = (
    (
        lambda update, types, literal: update.addColumn("grade", types.IntegerType.get(), literal(5)),
        "column 'grade' was added with the default 5 for old rows",
    ),
    (
        lambda update, types, literal: update.addColumn("place", "door", types.StringType.get(), literal("d")),
        "column 'place.door' was added with the default \"d\" for old rows",
    ),
)


def it_follows_in_place_what_an_index_can(spark, sql, new_index, alter, table, indexed, position):
    config = new_index(CREATE.format(version=2, mode="copy-on-write"), FILL)
    physical = position().physical_index
    sql("UPDATE {t} SET spare = 'before' WHERE id = 0")
    for change in (change for changes, _ in FOLLOWED for change in changes):
        alter(change)
    uses = ", ".join(use for _, use in FOLLOWED if use)
    sql(f"UPDATE {{t}} SET {uses} WHERE id = 1", "DELETE FROM {t} WHERE id = 2")
    sync_changes(spark, config)
    found = without_nulls(indexed()), validate_table(spark, config).ok, position().physical_index
    assert found == (without_nulls(table()), True, physical)


class DescribeAChangeThatAnIndexCannotFollow:
    @pytest.mark.parametrize(("version", "changes"), [(2, RENAMED), (3, ADDED_WITH_A_DEFAULT)])
    def it_is_refused_or_exported_again(self, spark, sql, new_index, alter, table, indexed, position, version, changes):
        config = new_index(CREATE.format(version=version, mode="merge-on-read"), FILL)
        sql("UPDATE {t} SET small = 77 WHERE id = 0")
        for number, (change, says) in enumerate(changes, 1):
            before = indexed(), position()
            alter(change)
            with pytest.raises(SchemaChangeError, match=says) as error:
                sync_changes(spark, config)
            assert ("on_schema_change=reexport" in error.value.remedy, (indexed(), position())) == (True, before)
            sql(f"DELETE FROM {{t}} WHERE id = {number}")
            report = sync_changes(spark, config.replace(on_schema_change="reexport"))
            assert (report.strategy, indexed()) == ("reexport", table())

    def it_leaves_the_ids_of_documents(self, spark, sql, new_index, alter, indexed):
        create = CREATE.format(version=2, mode="copy-on-write")
        config = new_index(create, "ALTER TABLE {t} SET IDENTIFIER FIELDS id, name", FILL, identifier_columns=[])
        ids = indexed().keys()
        alter("ALTER COLUMN name FIRST")
        assert sync_changes(spark, config).strategy == "none"
        alter("RENAME COLUMN name TO title")
        with pytest.raises(SchemaChangeError, match="'name' was renamed to 'title'"):
            sync_changes(spark, config)
        sql("DELETE FROM {t} WHERE id = 1")
        report = sync_changes(spark, config.replace(on_schema_change="reexport"))
        assert (report.strategy, indexed().keys(), "2|n2" in ids) == ("reexport", ids - {"1|n1"}, True)


def it_goes_on_from_a_batch_that_died_before_its_commit(spark, sql, new_index, indexed, opensearch, name):
    def died(column):
        """A column, and a sync of it that dies before its commit."""
        sql(f"ALTER TABLE {{t}} ADD COLUMN {column} STRING", f"UPDATE {{t}} SET {column} = 'x' WHERE id = 1")
        killed_at(sync, "commit_batch", lambda: sync_changes(spark, config))

    create = "CREATE TABLE {t} (id INT, name STRING) USING iceberg"
    config = new_index(create, "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    # No field is left of a column that was renamed since.
    died("note")
    sql("ALTER TABLE {t} RENAME COLUMN note TO remark")
    sync_changes(spark, config)
    assert indexed() == {"1": {"id": 1, "name": "a", "remark": "x"}, "2": {"id": 2, "name": "b"}}
    # Its documents get the field of a mapping that was set since.
    died("mapped")
    config = config.replace(mapping={"mapped": {"fields": {"raw": {"type": "keyword"}}}})
    sync_changes(spark, config)
    opensearch.indices.refresh(index=name)
    assert opensearch.count(index=name, body={"query": {"term": {"mapped.raw": "x"}}})["count"] == 1
