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
    values = ", ".join(f"({n}, 'row {n}', '{PLACES[n % 5]}', 'x{n % 3}')" for n in range(20))
    sql(
        "CREATE TABLE {t} (id INT, name STRING, place STRING, area STRING) USING iceberg",
        f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}",
    )


def placed(opensearch, name):
    """The documents that readers see, and the id and suffix of the index of each."""
    opensearch.indices.refresh(index=name)
    hits = opensearch.search(index=name, body={"size": 1000})["hits"]["hits"]
    return hits, sorted((hit["_id"], hit["_index"].rpartition("--")[2][7:]) for hit in hits)


@pytest.fixture
def in_place(opensearch, sql, spark, name):
    """Whether every row has one document, in the index that its row says, and readers see nothing else."""

    def check(config, place="place"):
        hits, found = placed(opensearch, name)
        expected = {(str(row["id"]), row["at"]) for row in sql(f"SELECT id, {place} AS at FROM {{t}}").collect()}
        assert found == sorted(expected)
        assert all(not config.routing or hit["_routing"] == hit["_source"][config.routing] for hit in hits)
        report = validate_table(spark, config)
        assert (report.ok, report.missing, report.extra, report.stale) == (True, 0, 0, 0)

    return check


def suffixes(opensearch, name):
    """The suffixes of the indexes that readers see."""
    return sorted(index.rpartition("--")[2][7:] for index in opensearch.indices.get_alias(name=name))


class DescribeAMovedRow:
    def it_is_one_document_in_its_new_index(self, spark, sql, new_index, lake, in_place, opensearch, name):
        """Here in the index that a projection says."""
        place, routed = "concat('p-', place)", {"routing": "area", "number_of_shards": 2}
        select = ["id", "name", "area", f"{place} AS place"]
        config = new_index(**BY_PLACE, **routed, select=select, change_mode="snapshot")
        in_place(config, place)
        sql("UPDATE {t} SET place = 'new', area = 'y' WHERE id < 7", "UPDATE {t} SET place = 'b' WHERE id = 3")
        sql("UPDATE {t} SET area = 'x0' WHERE id IN (8, 9)", "UPDATE {t} SET name = 'changed' WHERE id IN (11, 12)")
        sql("DELETE FROM {t} WHERE id = 10", "INSERT INTO {t} VALUES (99, 'late', 'later', 'z')")
        sync_changes(spark, config)
        in_place(config, place)
        seen = [f"p-{each}" for each in (*PLACES, "later", "new")]
        assert suffixes(opensearch, name) == ["", *seen]
        before = set(opensearch.indices.get(index=f"{name}--*"))
        sql("DELETE FROM {t} WHERE place = 'later'")
        export_table(spark, config)
        in_place(config, place)
        assert suffixes(opensearch, name) == ["", *(each for each in seen if each != "p-later")]
        assert not before & set(opensearch.indices.get(index=f"{name}--*"))
        assert status(spark, config).indexes[0].state == "ok"

    @pytest.mark.parametrize("n", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (0, 2, 3))])
    def it_is_gone_from_where_a_batch_put_it_that_broke_off(self, spark, sql, new_index, lake, in_place, n):
        config = new_index(**BY_PLACE, routing="area", number_of_shards=2)
        sql("UPDATE {t} SET place = 'between', area = 'y' WHERE id < 9")
        break_off(spark, config, n)
        sql("UPDATE {t} SET place = 'end', area = 'z' WHERE id < 5", "DELETE FROM {t} WHERE id = 7")
        sync_changes(spark, config)
        in_place(config)

    def it_starts_without_an_export(self, spark, sql, make_config, lake, opensearch, name):
        config = make_config(**BY_PLACE, start_from="latest")
        sync_changes(spark, config)
        assert suffixes(opensearch, name) == [""]
        sql("UPDATE {t} SET place = 'b' WHERE id = 0")
        sync_changes(spark, config)
        assert (suffixes(opensearch, name), opensearch.count(index=name)["count"]) == (["", "a", "b"], 1)
        assert validate_table(spark, config.replace(repair=True)).ok
        assert suffixes(opensearch, name) == ["", *PLACES]

    def it_moves_with_the_row_of_the_root_of_several_tables(self, spark, new_index, opensearch, name, request):
        shop = Shop(spark, name, "'format-version' = '2'", "'format-version' = '3'", tables=("film", "language"))
        request.addfinalizer(shop.drop)
        shop.fill()
        shop.sql("UPDATE {film} SET shelf = 'a'")
        spec = shop.spec | {"select": ["f.film_id", "f.title", "concat('s-', f.shelf) AS shelf"]}
        config = new_index(**spec, index_column="shelf", routing="shelf", number_of_shards=2)
        shop.sql("UPDATE {film} SET shelf = 'b' WHERE film_id IN (1, 4)")
        shop.sql("UPDATE {language} SET name = 'Welsh' WHERE language_id = 1")
        break_off(spark, config, 2)
        shop.sql("UPDATE {film} SET shelf = 'c' WHERE film_id = 1", "DELETE FROM {film} WHERE film_id = 2")
        shop.sql("UPDATE {language} SET name = 'Gaulish' WHERE language_id = 2")
        # Neither this row nor its index is ever there.
        shop.sql("INSERT INTO {film} VALUES (8, 'x', 1, 1, 'gone')")
        sync_changes(spark, config)
        shop.sql("DELETE FROM {film} WHERE film_id = 8", "UPDATE {language} SET name = 'English'")
        sync_changes(spark, config)
        hits, found = placed(opensearch, name)
        assert found == sorted(
            (str(row.film_id), f"s-{row.shelf}") for row in shop.sql("SELECT * FROM {film}").collect()
        )
        assert all(f"s-{hit['_routing']}" == hit["_source"]["shelf"] for hit in hits)
        documents = {hit["_id"]: {**hit["_source"], "shelf": None} for hit in hits}
        assert documents == {key: {**document, "shelf": None} for key, document in shop.documents().items()}
        assert validate_table(spark, config).ok
        assert "s-gone" not in suffixes(opensearch, name)


class DescribeTheIndexes:
    def it_refuses_follows_and_repairs(self, spark, sql, make_config, lake, in_place, opensearch, name):
        # A bound, and a column that is not in the document.
        with pytest.raises(errors.ConfigError, match="more than 4 indexes"):
            export_table(spark, make_config(**BY_PLACE, max_indexes=4))
        with pytest.raises(errors.ColumnNotFoundError, match="no column 'place'"):
            export_table(spark, make_config(**BY_PLACE, columns=["id", "name"]))
        config = make_config(**BY_PLACE)
        bound = config.replace(max_indexes=5)
        export_table(spark, bound)
        sql("UPDATE {t} SET place = 'f' WHERE id = 1")
        for given in (bound, bound.replace(dry_run=True)):
            with pytest.raises(errors.ConfigError, match="more than 5 indexes"):
                sync_changes(spark, given)
        assert suffixes(opensearch, name) == ["", *PLACES]
        sql("UPDATE {t} SET place = 'b' WHERE id = 1")

        # Values that no suffix can be.
        for value in ("NULL", "''", "'EU'", "'a/b'", "'a--write'", "'-a'", "repeat('a', 101)"):
            sql(f"INSERT INTO {{t}} VALUES (7001, 'new', 'f', 'a'), (7002, 'new', {value}, 'a')")
            with pytest.raises(errors.ConfigError, match=r"value of place .*'id': 7002.*row_filter") as refused:
                sync_changes(spark, config)
            assert refused.value.subject == "index_column"
            assert (suffixes(opensearch, name), opensearch.count(index=name)["count"]) == (["", *PLACES], 20), value
            sql("DELETE FROM {t} WHERE id > 7000")

        # A new column and settings, in every index.
        sql("ALTER TABLE {t} ADD COLUMN more INT", "UPDATE {t} SET more = 1, place = 'new' WHERE id < 7")
        config = config.replace(settings={"refresh_interval": "7s"})
        sync_changes(spark, config)
        in_place(config)
        settings = opensearch.indices.get_settings(index=name, flat_settings=True).values()
        assert {each["settings"]["index.refresh_interval"] for each in settings} == {"7s"}

        # Documents in a wrong one.
        (physical,) = (index for index in opensearch.indices.get(index=name) if not index[-1].isalpha())
        body = {"id": 11, "name": "row 11", "place": "b", "area": "x2", "more": None}
        for index, identity in (("-c", "11"), ("-d", "77"), ("", "78")):
            opensearch.index(index=f"{physical}{index}", id=identity, body=body, version=99, version_type="external")
        opensearch.delete(index=f"{physical}-e", id="14", version=99, version_type="external")
        report = validate_table(spark, config)
        assert (report.missing_ids, report.extra_ids, report.stale_ids) == (["14"], ["11", "77", "78"], [])
        assert validate_table(spark, config.replace(repair=True)).ok
        in_place(config)

        # One of them is gone.
        opensearch.indices.delete(index=f"{physical}-b")
        sql("DELETE FROM {t} WHERE id = 11")
        with pytest.raises(errors.IndexNotFoundError, match=f"{physical}-b.* is gone"):
            sync_changes(spark, config)
        export_table(spark, config)
        assert validate_table(spark, config).ok

    @pytest.mark.long
    def it_replays_a_dead_letter_in_its_own(self, spark, sql, new_index, lake, in_place):
        mapping = {"name": {"type": "keyword"}}
        config = new_index(**BY_PLACE, routing="area", mapping=mapping, max_rejected_documents=9)
        sql("UPDATE {t} SET name = repeat('x', 40000), place = 'c' WHERE id IN (1, 2)")
        assert sync_changes(spark, config).rejected == 2
        letters = sql(f"SELECT document_id, place FROM lake.ns.icecdc_dead_letters WHERE index = '{config.index}'")
        assert sorted(map(tuple, letters.collect())) == [("1", "c/x1"), ("2", "c/x2")]
        assert replay_dead_letters(spark, config).steps[0]["rejected"] == 2
        sql("UPDATE {t} SET name = 'short' WHERE id < 9")
        sync_changes(spark, config)
        assert replay_dead_letters(spark, config).steps[0]["rejected"] == 0
        in_place(config)
