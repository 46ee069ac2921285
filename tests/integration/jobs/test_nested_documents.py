"""Documents of several tables: exported, synced, validated and repaired, whichever table changes."""

from unittest import mock

import pytest

from icecdc_core import export_table, status, sync_changes, validate_table
from icecdc_core.errors import ConfigError, HistoryGapError, SchemaChangeError, SeveralMatchesError, TableReplacedError
from icecdc_core.runs import nested
from tests.given.nested_shop import KINDS
from tests.histories.proof import break_off

# What happens in the range of one sync; none of it hides what another does.
CHANGES = (
    {
        "a row of a nested table (pgsync 371)": "UPDATE {country} SET name = 'Espana' WHERE country_id = 100",
        "a link of the root": "UPDATE {film} SET language_id = 2 WHERE film_id = 1",
        "a row of the table between": "UPDATE {film_actor} SET film_id = 3 WHERE actor_id = 12",
        "one of two children that goes (Data Prepper 6759)": "DELETE FROM {film_actor} WHERE actor_id = 11",
        "a new root": "INSERT INTO {film} VALUES (5, 'Eraserhead', 1, 1, 'a')",
        "a row three levels below": "UPDATE {continent} SET name = 'The old world' WHERE code = 'EU'",
    },
    {
        "a nested row that goes": "DELETE FROM {language} WHERE language_id = 2",
        "a row between that comes (pgsync 613)": "INSERT INTO {film_actor} VALUES (1, 11)",
        "a filter of a nested table": "UPDATE {actor} SET name = 'hidden' WHERE actor_id = 12",
        "a filter of the root": "UPDATE {film} SET shelf = 'gone' WHERE film_id = 2",
        "a link in the middle (pgsync 115)": "UPDATE {actor} SET country_id = 101 WHERE actor_id = 15",
        "a nested row that comes later (pgsync 493, 569)": "INSERT INTO {language} VALUES (8, 'Welsh', 'x')",
        "a root that goes": "DELETE FROM {film} WHERE film_id = 4",
        "the key of a root": "UPDATE {film} SET film_id = 6 WHERE film_id = 5",
        "a row that gets a key": "UPDATE {actor} SET actor_id = 13 WHERE name = 'b'",
    },
)
# What no document shows.
UNSEEN = (
    "UPDATE {language} SET note = 'y' WHERE language_id = 1",
    "UPDATE {actor} SET note = 'y'",
    "INSERT INTO {film} VALUES (null, 'x', 1, 1, 'gone'), (77, 'y', 1, 1, 'gone')",
    "INSERT INTO {actor} VALUES (null, 'a', 100, 'x'), (null, 'c', 100, 'x')",
    "INSERT INTO {film_actor} VALUES (null, 13), (null, 10)",
)


@pytest.fixture
def pair(make_shop):
    """Films with their languages, for what does not depend on the depth of the tree."""
    return make_shop(*KINDS, tables=("film", "language"))


@pytest.fixture
def of_pair(pair, make_config):
    return make_config(**pair.spec)


class DescribeDocumentsOfSeveralTables:
    def it_follows_every_table(self, spark, make_shop, make_config, indexed):
        shop = make_shop(*KINDS)
        config = make_config(**shop.spec)
        # Nothing happens to film 8; film 7 has an actor whose row has no key yet.
        shop.sql("INSERT INTO {film} VALUES (7, 'Eva', 1, 1, ''), (8, 'Fargo', 1, 1, ''), (null, 'w', 1, 1, 'gone')")
        shop.sql("INSERT INTO {film} VALUES (9, 'Gigi', 1, 1, ''), (10, 'Heat', 8, 1, '')")
        shop.sql("INSERT INTO {actor} VALUES (14, 'Di', 102, 'x'), (15, 'Ed', 100, 'x'), (null, 'b', 100, 'x')")
        shop.sql("INSERT INTO {film_actor} VALUES (8, 14), (9, 15), (7, 13)")
        exported, expected = export_table(spark, config), shop.documents()
        assert (exported.upserts, indexed()) == (8, expected)
        # Links in the driver, then in a cache.
        for together, few in zip(CHANGES, (20_000, 0), strict=True):
            statements = [*together.values(), *(UNSEEN if "the key of a root" in together else ())]
            shop.sql(*statements)
            before, expected = expected, shop.documents()
            changed = {key for key in {*expected, *before} if expected.get(key) != before.get(key)}
            (lagging,) = status(spark, config).indexes
            with mock.patch.object(nested, "_FEW", few):
                report = sync_changes(spark, config)
            assert changed, together
            assert indexed() == expected, together
            assert (report.upserts + report.deletes, report.drifted) == (len(changed), 0), together
            assert report.snapshots == lagging.lag_snapshots == len(statements)
            assert len(report.nested_snapshots) == 5
        found = validate_table(spark, config)
        assert (found.ok, found.source_rows) == (True, len(expected))
        assert (status(spark, config).indexes[0].lag_snapshots, sync_changes(spark, config).snapshots) == (0, 0)

    def it_goes_on_after_whatever_stopped_it(self, spark, pair, of_pair, opensearch, indexed):
        # Changes alone, without an export.
        started = of_pair.replace(start_from="latest")
        sync_changes(spark, started)
        assert indexed() == {}
        pair.sql("UPDATE {language} SET name = 'Anglais' WHERE language_id = 1")
        sync_changes(spark, started)
        expected = pair.documents()
        assert indexed() == {key: expected[key] for key in ("1", "2", "3")}
        export_table(spark, of_pair.replace(export_group_bytes=1))
        before = indexed()
        assert before == pair.documents()

        # Rows that do not fit into one object.
        pair.sql("INSERT INTO {language} VALUES (1, 'Inglese', 'x')")
        for dry_run in (True, False):
            with pytest.raises(SeveralMatchesError, match=r"'(language|original)'.*Anglais.*Inglese"):
                export_table(spark, of_pair.replace(dry_run=dry_run))
        pair.sql("DELETE FROM {language} WHERE name = 'Inglese'")
        # No document has these.
        pair.sql("INSERT INTO {language} VALUES (77, 'a', 'x'), (77, 'b', 'x'), (null, 'c', 'x'), (null, 'd', 'x')")
        pair.sql("INSERT INTO {language} VALUES (2, 'Gallic', 'x')")
        with pytest.raises(SeveralMatchesError, match=r"'(language|original)'.*French.*Gallic"):
            sync_changes(spark, of_pair)
        assert indexed() == before
        pair.sql("DELETE FROM {language} WHERE name = 'Gallic'")
        sync_changes(spark, of_pair)
        assert indexed() == before

        # A change that would rewrite more documents than allowed.
        limited = of_pair.replace(max_fan_out=2)
        pair.sql("DELETE FROM {language} WHERE coalesce(language_id, 77) = 77")
        pair.sql("UPDATE {language} SET name = upper(name) WHERE language_id = 1")
        assert sync_changes(spark, limited.replace(dry_run=True)).upserts == 3
        with pytest.raises(ConfigError, match="affect 3 documents") as refused:
            sync_changes(spark, limited)
        assert (refused.value.subject, indexed()) == ("max_fan_out", before)

        # Documents that somebody else changed.
        opensearch.update(index=of_pair.index, id="1", body={"doc": {"language": {"name": "?"}}}, refresh="true")
        opensearch.delete(index=of_pair.index, id="2", refresh="true")
        pair.sql("DELETE FROM {language} WHERE language_id = 1")  # after the position: a repair leaves that to the sync
        found = validate_table(spark, of_pair.replace(validate_at="position"))
        assert (found.stale_ids, found.missing_ids) == (["1"], ["2"])
        assert validate_table(spark, of_pair.replace(repair=True)).ok
        sync_changes(spark, of_pair)
        assert indexed() == pair.documents()

        # Another history, schema, table or nest.
        name = pair.table("language").removeprefix("lake.")
        expire = f"table => '{name}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
        for error, policy, statements in (
            (SchemaChangeError, "on_schema_change",
             ["ALTER TABLE {language} RENAME COLUMN name TO label", "ALTER TABLE {language} ADD COLUMN name STRING"]),
            (HistoryGapError, "", ["UPDATE {language} SET name = 'x'", f"CALL lake.system.expire_snapshots({expire})"]),
            (TableReplacedError, "on_history_gap",
             ["DROP TABLE {language}",
              "CREATE TABLE {language} (language_id INT, name STRING, note STRING) USING iceberg",
              "INSERT INTO {language} VALUES (1, 'English', 'x')"]),
        ):  # fmt: skip
            for statement in statements:
                pair.sql(statement)
            with pytest.raises(error, match=r"nested table '.*_language'"):
                sync_changes(spark, of_pair)
            if policy:
                sync_changes(spark, of_pair.replace(**{policy: "reexport"}))
                assert indexed() == pair.documents(), error

    def it_takes_up_a_new_column_and_another_name_of_a_nested_table(self, spark, pair, of_pair, indexed, opensearch):
        everything = {**of_pair.nest["language"], "select": ["*"]}
        config = of_pair.replace(select=[], columns=["film_id", "title"], nest={"language": everything})
        export_table(spark, config)
        with pytest.raises(SchemaChangeError, match=r'is, give columns=\["film_id", "title"\]; to change it'):
            sync_changes(spark, config.replace(columns=["film_id"]))
        pair.sql("ALTER TABLE {language} ADD COLUMN iso STRING")
        pair.sql("INSERT INTO {language} VALUES (9, 'Welsh', 'x', 'cy')")
        config = config.replace(mapping={"language.iso": {"type": "keyword"}})
        sync_changes(spark, config)
        (physical,) = opensearch.indices.get_mapping(index=config.index).values()
        assert physical["mappings"]["properties"]["language"]["properties"]["iso"] == {"type": "keyword"}
        assert indexed()["3"]["language"] == {"language_id": 9, "name": "Welsh", "note": "x", "iso": "cy"}
        assert validate_table(spark, config).ok

        # A broken batch is repeated over a snapshot from before the rename.
        pair.sql("ALTER TABLE {language} RENAME COLUMN language_id TO number")
        renamed = {**everything, "select": ["name"], "on": everything["on"].replace("language_id =", "number =")}
        config = of_pair.replace(nest={"language": renamed})
        export_table(spark, config.replace(replace_index=True))
        pair.sql("UPDATE {film} SET title = 'x' WHERE film_id = 1")
        break_off(spark, config, 0)
        pair.sql("UPDATE {language} SET name = 'Welsh' WHERE number = 1")
        sync_changes(spark, config)
        assert validate_table(spark, config).ok
        pair.sql("ALTER TABLE {language} ADD COLUMN _change_type STRING")
        nest = {"language": {**renamed, "row_filter": "l._change_type IS NULL"}}
        with pytest.raises(ConfigError, match=r"_change_type of '.*_language'"):
            export_table(spark, config.replace(nest=nest))

    def it_nests_the_root_in_itself(self, spark, sql, name, indexed, new_index):
        """Also as a link in the middle of a chain (pgsync 586)."""
        sql("CREATE TABLE {t} (id INT, name STRING, boss INT) USING iceberg")
        sql("INSERT INTO {t} VALUES (1, 'Ann', null), (2, 'Ben', 1), (3, 'Cid', 2), (null, 'none', null)")
        table = f"lake.ns.{name}"
        top = {"table": table, "alias": "c", "on": "c.id = b.boss", "select": ["c.name"]}
        boss = {"table": table, "alias": "b", "on": "b.id = e.boss", "select": ["b.name"], "nest": {"top": top}}
        config = new_index(alias="e", nest={"lead": boss}, row_filter="e.id IS NOT NULL")
        sql("UPDATE {t} SET name = 'Anna' WHERE id = 1")
        assert sync_changes(spark, config).upserts == 3
        assert {key: each["lead"] for key, each in indexed().items()} == {
            "1": None,
            "2": {"name": "Anna", "top": None},
            "3": {"name": "Ben", "top": {"name": "Anna"}},
        }
        sql("UPDATE {t} SET boss = null WHERE id = 2")
        with mock.patch.object(nested, "_FEW_VALUES", 0):
            assert sync_changes(spark, config).upserts == 2
        assert indexed()["3"]["lead"] == {"name": "Ben", "top": None}

    def it_prunes_by_no_key_that_a_second_cast_changed(self, spark, sql, name, indexed, make_shop, new_index):
        shop = make_shop(tables=("continent",))
        sql("CREATE TABLE {t} (id INT, code STRING) USING iceberg", "INSERT INTO {t} VALUES (1, '7')")
        shop.sql("INSERT INTO {continent} VALUES ('007', 'Bond')")
        link = f"cast(cast(k.code AS int) AS string) = {name}.code"
        spec = {"table": shop.table("continent"), "alias": "k", "on": link, "row_filter": "k.code LIKE '0%'"}
        config = new_index(select=[f"{name}.id", "code"], nest={"agent": spec})
        sql("INSERT INTO {t} VALUES (2, '7')")
        sync_changes(spark, config)
        assert {each["agent"]["name"] for each in indexed().values()} == {"Bond"}
        shop.sql("UPDATE {continent} SET name = 'James'")
        assert sync_changes(spark, config).upserts == 2
