"""Documents in several indexes behind one alias, by the value of a column: they move with their rows."""

import pytest

from icecdc_core import errors, export_table, replay_dead_letters, status, sync_changes, validate_table
from tests.histories.proof import break_off
from tests.nested_shop import Shop

PLACES = ("a", "b", "c", "d", "e")
BY_PLACE = {"index_column": "place"}


@pytest.fixture
def lake(sql):
    """Make the table of this test: 20 rows, 4 in each place."""
    sql("CREATE TABLE {t} (id INT, name STRING, place STRING, area STRING) USING iceberg")
    values = ", ".join(f"({n}, 'row {n}', '{PLACES[n % 5]}', 'x{n % 3}')" for n in range(20))
    sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")


@pytest.fixture
def in_place(opensearch, sql, spark, name):
    """Whether every row has one document, in the index that its row says, and readers see nothing else."""

    def check(config, place="place"):
        opensearch.indices.refresh(index=name)
        found = opensearch.search(index=name, body={"size": 1000})["hits"]["hits"]
        expected = {(str(row["id"]), row["at"]) for row in sql(f"SELECT id, {place} AS at FROM {{t}}").collect()}
        assert sorted((hit["_id"], hit["_index"].rpartition("--")[2][7:]) for hit in found) == sorted(expected)
        assert all(not config.routing or hit["_routing"] == hit["_source"][config.routing] for hit in found)
        report = validate_table(spark, config)
        assert (report.ok, report.missing, report.extra, report.stale) == (True, 0, 0, 0)

    return check


def suffixes(opensearch, name):
    """The suffixes of the indexes that readers see."""
    return sorted(index.rpartition("--")[2][7:] for index in opensearch.indices.get_alias(name=name))


class DescribeAMovedRow:
    @pytest.mark.parametrize(
        "more",
        [
            pytest.param({}, marks=pytest.mark.long),
            {"routing": "area", "number_of_shards": 2, "change_mode": "snapshot"},
        ],
    )
    def it_is_one_document_in_its_new_index(self, spark, sql, make_config, lake, in_place, opensearch, name, more):
        config = make_config(**BY_PLACE, **more)
        export_table(spark, config)
        in_place(config)
        sql("UPDATE {t} SET place = 'new', area = 'y' WHERE id < 7")
        sql("UPDATE {t} SET place = 'b' WHERE id = 3")
        sql("UPDATE {t} SET area = 'x0' WHERE id IN (8, 9)")
        sql("DELETE FROM {t} WHERE id = 10")
        sql("INSERT INTO {t} VALUES (99, 'late', 'later', 'z')")
        sync_changes(spark, config)
        in_place(config)
        assert suffixes(opensearch, name) == ["", *PLACES, "later", "new"]
        before = set(opensearch.indices.get(index=f"{name}--*"))
        sql("DELETE FROM {t} WHERE place = 'later'")
        export_table(spark, config)
        in_place(config)
        assert suffixes(opensearch, name) == ["", *PLACES, "new"]
        assert not before & set(opensearch.indices.get(index=f"{name}--*"))
        assert status(spark, config).indexes[0].state == "ok"

    def it_is_where_a_projection_says(self, spark, sql, make_config, lake, in_place):
        select = ["id", "date_format(make_date(2026, 1 + id % 3, 1), 'yyyy.MM') AS month", "name"]
        config = make_config(select=select, index_column="month")
        export_table(spark, config)
        sql("UPDATE {t} SET name = 'changed' WHERE id < 9")
        sql("DELETE FROM {t} WHERE id = 4")
        sync_changes(spark, config)
        in_place(config, "date_format(make_date(2026, 1 + id % 3, 1), 'yyyy.MM')")

    @pytest.mark.parametrize("n", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (0, 2, 3))])
    def it_is_gone_from_where_a_batch_put_it_that_broke_off(self, spark, sql, make_config, lake, in_place, n):
        config = make_config(**BY_PLACE, routing="area", number_of_shards=2)
        export_table(spark, config)
        sql("UPDATE {t} SET place = 'between', area = 'y' WHERE id < 9")
        break_off(spark, config, n)
        sql("UPDATE {t} SET place = 'end', area = 'z' WHERE id < 5")
        sql("DELETE FROM {t} WHERE id = 7")
        sync_changes(spark, config)
        in_place(config)

    def it_follows_new_columns_and_settings_in_every_index(
        self, spark, sql, make_config, lake, in_place, opensearch, name
    ):
        config = make_config(**BY_PLACE)
        export_table(spark, config)
        sql("ALTER TABLE {t} ADD COLUMN more INT")
        sql("UPDATE {t} SET more = 1, place = 'new' WHERE id < 7")
        config = config.replace(settings={"refresh_interval": "7s"})
        sync_changes(spark, config)
        in_place(config)
        settings = opensearch.indices.get_settings(index=name, flat_settings=True).values()
        assert {each["settings"]["index.refresh_interval"] for each in settings} == {"7s"}

    def it_starts_without_an_export(self, spark, sql, make_config, lake, opensearch, name):
        config = make_config(**BY_PLACE, start_from="latest")
        sync_changes(spark, config)
        assert suffixes(opensearch, name) == [""]
        sql("UPDATE {t} SET place = 'b' WHERE id = 0")
        sync_changes(spark, config)
        assert (suffixes(opensearch, name), opensearch.count(index=name)["count"]) == (["", "a", "b"], 1)
        assert validate_table(spark, config.replace(repair=True)).ok
        assert suffixes(opensearch, name) == ["", *PLACES]


class DescribeADocumentOfSeveralTables:
    def it_moves_with_the_row_of_its_root(self, spark, make_config, opensearch, name):
        shop = Shop(spark, name, "'format-version' = '2'", "'format-version' = '3'", tables=("film", "language"))
        spec = shop.spec | {"select": ["f.film_id", "f.title", "concat('s-', f.shelf) AS shelf"]}

        def check():
            opensearch.indices.refresh(index=name)
            hits = opensearch.search(index=name, body={"size": 100})["hits"]["hits"]
            shelves = {str(row.film_id): f"s-{row.shelf}" for row in shop.sql("SELECT * FROM {film}").collect()}
            found = {(hit["_id"], hit["_index"].rpartition("--")[2][7:]) for hit in hits}
            assert (len(hits), found) == (len(shelves), {*shelves.items()})
            assert all(f"s-{hit['_routing']}" == hit["_source"]["shelf"] for hit in hits)
            assert {hit["_id"]: {**hit["_source"], "shelf": None} for hit in hits} == {
                key: {**document, "shelf": None} for key, document in shop.documents().items()
            }
            assert validate_table(spark, config).ok

        try:
            shop.fill()
            shop.sql("UPDATE {film} SET shelf = 'a'")
            config = make_config(**spec, index_column="shelf", routing="shelf", number_of_shards=2)
            export_table(spark, config)
            shop.sql("UPDATE {film} SET shelf = 'b' WHERE film_id IN (1, 4)")
            shop.sql("UPDATE {language} SET name = 'Welsh' WHERE language_id = 1")
            break_off(spark, config, 2)
            shop.sql("UPDATE {film} SET shelf = 'c' WHERE film_id = 1")
            shop.sql("DELETE FROM {film} WHERE film_id = 2")
            shop.sql("UPDATE {language} SET name = 'Gaulish' WHERE language_id = 2")
            # Neither this row nor its index is ever there.
            shop.sql("INSERT INTO {film} VALUES (8, 'x', 1, 1, 'gone')")
            sync_changes(spark, config)
            shop.sql("DELETE FROM {film} WHERE film_id = 8")
            shop.sql("UPDATE {language} SET name = 'English'")
            sync_changes(spark, config)
            check()
            assert "s-gone" not in suffixes(opensearch, name)
        finally:
            shop.drop()


class DescribeTheSuffix:
    def it_is_refused_before_the_first_write(self, spark, sql, make_config, lake, opensearch, name):
        config = make_config(**BY_PLACE)
        export_table(spark, config)
        for value in ("NULL", "''", "'EU'", "'a/b'", "'a--write'", "'-a'", "repeat('a', 101)"):
            sql(f"INSERT INTO {{t}} VALUES (7001, 'new', 'f', 'a'), (7002, 'new', {value}, 'a')")
            with pytest.raises(errors.ConfigError, match=r"value of place .*'id': 7002.*row_filter") as refused:
                sync_changes(spark, config)
            assert refused.value.subject == "index_column"
            assert (suffixes(opensearch, name), opensearch.count(index=name)["count"]) == (["", *PLACES], 20), value
            sql("DELETE FROM {t} WHERE id > 7000")

    def it_has_a_bound(self, spark, sql, make_config, lake, opensearch, name):
        with pytest.raises(errors.ConfigError, match="more than 4 indexes"):
            export_table(spark, make_config(**BY_PLACE, max_indexes=4))
        config = make_config(**BY_PLACE, max_indexes=5)
        export_table(spark, config)
        sql("UPDATE {t} SET place = 'f' WHERE id = 1")
        for job in (sync_changes, lambda s, c: sync_changes(s, c.replace(dry_run=True))):
            with pytest.raises(errors.ConfigError, match="more than 5 indexes"):
                job(spark, config)
        assert suffixes(opensearch, name) == ["", *PLACES]

    def it_is_a_field_of_the_document(self, spark, make_config, lake):
        with pytest.raises(errors.ColumnNotFoundError, match="no column 'place'"):
            export_table(spark, make_config(**BY_PLACE, columns=["id", "name"]))


class DescribeTheIndexes:
    def it_repairs_what_is_in_a_wrong_one(self, spark, sql, make_config, lake, in_place, opensearch, name):
        config = make_config(**BY_PLACE)
        export_table(spark, config)
        (physical,) = (index for index in opensearch.indices.get(index=name) if not index[-1].isalpha())
        body = {"id": 1, "name": "row 1", "place": "b", "area": "x1"}
        for index, identity in (("-c", "1"), ("-d", "77"), ("", "78")):
            opensearch.index(index=f"{physical}{index}", id=identity, body=body, version=99, version_type="external")
        opensearch.delete(index=f"{physical}-e", id="4", version=99, version_type="external")
        report = validate_table(spark, config)
        assert (report.missing_ids, report.extra_ids, report.stale_ids) == (["4"], ["1", "77", "78"], [])
        assert validate_table(spark, config.replace(repair=True)).ok
        in_place(config)

    def it_refuses_to_go_on_without_one(self, spark, sql, make_config, lake, opensearch, name):
        config = make_config(**BY_PLACE)
        export_table(spark, config)
        (gone,) = (index for index in opensearch.indices.get(index=name) if index.endswith("-b"))
        opensearch.indices.delete(index=gone)
        sql("DELETE FROM {t} WHERE id = 1")
        with pytest.raises(errors.IndexNotFoundError, match=f"{gone}.* is gone"):
            sync_changes(spark, config)
        export_table(spark, config)
        assert validate_table(spark, config).ok

    @pytest.mark.long
    def it_replays_a_dead_letter_in_its_own(self, spark, sql, make_config, lake, in_place):
        config = make_config(
            **BY_PLACE, routing="area", mapping={"name": {"type": "keyword"}}, max_rejected_documents=9
        )
        export_table(spark, config)
        sql("UPDATE {t} SET name = repeat('x', 40000), place = 'c' WHERE id IN (1, 2)")
        assert sync_changes(spark, config).rejected == 2
        letters = sql(f"SELECT document_id, place FROM lake.ns.icecdc_dead_letters WHERE index = '{config.index}'")
        assert sorted(map(tuple, letters.collect())) == [("1", "c/x1"), ("2", "c/x2")]
        assert replay_dead_letters(spark, config).steps[0]["rejected"] == 2
        sql("UPDATE {t} SET name = 'short' WHERE id < 9")
        sync_changes(spark, config)
        assert replay_dead_letters(spark, config).steps[0]["rejected"] == 0
        in_place(config)
