"""Documents that columns place in a shard or in one of several indexes: they move with their rows, none is twice."""

import pytest

from icecdc_core import errors, export_table, replay_dead_letters, status, sync_changes, validate_table
from icecdc_core.columns import PLACE
from icecdc_core.jobs.setup import check_setup
from icecdc_core.table.source import Selection, Source
from tests.histories.proof import break_off, placed

PLACES = ("a", "b", "c", "d", "e")
FOUR_SHARDS = {"routing": "place", "number_of_shards": 4}
BY_PLACE = {"index_column": "place"}
BOTH = {**BY_PLACE, "routing": "area", "number_of_shards": 2}


@pytest.fixture(autouse=True)
def lake(sql):
    """20 rows, 4 in each place, in one file."""
    sql(
        "CREATE TABLE {t} (id INT, name STRING, place STRING, area STRING) USING iceberg",
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ CAST(id AS INT), concat('row ', id), substr('abcde', id % 5 + 1, 1),"
        " concat('x', id % 3) FROM range(20)",
    )


@pytest.fixture
def in_place(opensearch, sql, name):
    """Whether every row has one document, where its row says, and readers see nothing else."""

    def check(config, select="*", hidden=()):
        expected = []
        for row in sql(f"SELECT {select} FROM {{t}}").collect():
            routing = row[config.routing] if config.routing else None
            suffix = row[config.index_column] if config.index_column else ""
            document = {field: value for field, value in row.asDict().items() if field not in hidden}
            expected.append((str(row["id"]), routing, suffix, document))
        nulls = dict.fromkeys(expected[0][-1])  # of columns that were added after the document was written
        found = [(*place, {**nulls, **document}) for *place, document in placed(opensearch, name)]
        assert found == sorted(expected, key=lambda row: row[0])

    return check


def suffixes(opensearch, name):
    """The suffixes of the indexes that readers see."""
    return sorted(index.rpartition("--")[2][7:] for index in opensearch.indices.get_alias(name=name))


def move(sql, to, where):
    sql(f"UPDATE {{t}} SET place = '{to}' WHERE {where}")


class DescribeAMovedRow:
    def it_is_one_document_in_the_index_that_a_projection_says(self, spark, sql, new_index, in_place, opensearch, name):
        select = ["id", "name", "area", "concat('p-', place) AS place"]
        config = new_index(**BOTH, select=select, change_mode="snapshot")
        sql("UPDATE {t} SET place = 'new', area = 'y' WHERE id < 7", "UPDATE {t} SET place = 'b' WHERE id = 3")
        sync_changes(spark, config)
        in_place(config, ", ".join(select))
        seen = [f"p-{each}" for each in (*PLACES, "new")]
        assert suffixes(opensearch, name) == ["", *seen]
        before = set(opensearch.indices.get(index=f"{name}--*"))
        sql("DELETE FROM {t} WHERE place = 'new'")
        export_table(spark, config)
        in_place(config, ", ".join(select))
        assert suffixes(opensearch, name) == ["", *seen[:-1]]
        assert not before & set(opensearch.indices.get(index=f"{name}--*"))
        assert status(spark, config).indexes[0].state == "ok"

    @pytest.mark.long
    def it_is_the_last_of_several_rows(self, spark, sql, new_index, opensearch, name):
        config = new_index(**FOUR_SHARDS, on_duplicate_identifier="last")
        for place in ("e", "c", "d"):  # the greatest name is that of "c", then that of "d"
            sql(f"INSERT INTO {{t}} VALUES (1, 'row 1 {'z' if place != 'e' else ''} {place}', '{place}', 'x')")
            sync_changes(spark, config)
        sql("DELETE FROM {t} WHERE id = 1 AND place = 'd'")
        sync_changes(spark, config)
        assert [place for identity, place, *_ in placed(opensearch, name) if identity == "1"] == ["c"]
        assert validate_table(spark, config).ok

    def it_is_deleted_where_a_failed_batch_put_it(self, spark, sql, new_index, in_place):
        # The batch wrote an intermediate place and then some documents were rejected, so it is not repeated.
        select = ["id", "replace(name, 'row ', '') AS name"]
        config = new_index(**FOUR_SHARDS, select=select, mapping={"name": {"type": "long"}})
        sql("UPDATE {t} SET place = substr('abcde', (id + 4) % 5 + 1, 1) WHERE id < 15")
        sql("UPDATE {t} SET name = 'no number' WHERE id = 19")
        with pytest.raises(errors.RejectedDocumentsError):
            sync_changes(spark, config)
        move(sql, "d", "id < 7")
        sql("DELETE FROM {t} WHERE id IN (8, 19)")
        sync_changes(spark, config)
        in_place(config, ", ".join([*select, "place"]), hidden=["place"])
        assert sync_changes(spark, config).upserts == 0

    def it_moves_with_the_row_of_the_root_of_several_tables(self, spark, new_index, opensearch, name, make_shop):
        shop = make_shop("'format-version' = '2'", "'format-version' = '3'", tables=("film", "language"))
        shop.sql("UPDATE {film} SET shelf = 'a'")
        spec = shop.spec | {"select": ["f.film_id", "f.title", "concat('s-', f.shelf) AS shelf"]}
        config = new_index(**spec, index_column="shelf", routing="shelf", number_of_shards=2)
        shop.sql("UPDATE {film} SET shelf = 'b' WHERE film_id IN (1, 4)")
        shop.sql("UPDATE {language} SET name = 'Welsh' WHERE language_id = 1")
        # Neither this row nor its index is ever there.
        shop.sql("INSERT INTO {film} VALUES (8, 'x', 1, 1, 'gone')")
        break_off(spark, config, 2)
        shop.sql("UPDATE {film} SET shelf = 'c' WHERE film_id = 1", "DELETE FROM {film} WHERE film_id IN (2, 8)")
        shop.sql("UPDATE {language} SET name = 'Gaulish' WHERE language_id = 2")
        sync_changes(spark, config)
        documents = shop.documents()
        assert placed(opensearch, name) == [
            (str(row.film_id), row.shelf, f"s-{row.shelf}", documents[str(row.film_id)] | {"shelf": f"s-{row.shelf}"})
            for row in shop.sql("SELECT * FROM {film} ORDER BY film_id").collect()
        ]
        assert "s-gone" not in suffixes(opensearch, name)


class DescribeTheColumn:
    def it_is_refused_if_a_row_has_no_place(self, spark, sql, new_index, in_place, opensearch, name, monkeypatch):
        def indexes():
            return sorted(opensearch.indices.get(index=f"{name}--*", params={"expand_wildcards": "all"}))

        config = new_index(**FOUR_SHARDS)
        before = placed(opensearch, name), indexes()
        sql("INSERT INTO {t} VALUES (7001, 'new', 'a', 'x'), (7002, 'new', NULL, 'x')")
        for change in ("place = '' WHERE id = 7002", "place = 'a,b' WHERE id = 7002", "name = 'changed' WHERE id < 10"):
            with pytest.raises(errors.ConfigError, match=r"value of place .*'id': 7002.*row_filter") as refused:
                sync_changes(spark, config)
            sql(f"UPDATE {{t}} SET {change}")
        assert refused.value.subject == "routing"
        for given in (config, config.replace(dry_run=True)):
            with pytest.raises(errors.ConfigError, match="'id': 7002"):
                export_table(spark, given)
        (problem,) = check_setup(spark, config).problems
        assert "'id': 7002" in problem
        assert (placed(opensearch, name), indexes()) == before
        with monkeypatch.context() as earlier:  # such documents stayed where no search by a routing found them
            earlier.setattr(Source, "require_places", lambda *_: None)
            sync_changes(spark, config)
        move(sql, "d", "id = 7002")
        sync_changes(spark, config.replace(change_mode="snapshot"))
        in_place(config)

    def it_has_values_that_a_suffix_can_be(self, spark):
        refused = [None, "", "EU", "a/b", "a--write", "-a", "a" * 101]
        rows = spark.createDataFrame([*enumerate(refused), (7, "a" * 100), (8, "2026-01.b_c")], "id INT, at STRING")
        found = Selection(("id", "at"), index_column="at").select(rows).collect()
        assert [row[PLACE] for row in found] == [*([None] * 7), f"{'a' * 100}/", "2026-01.b_c/"]

    def it_is_a_text_and_hides_no_duplicate_from_an_export(self, spark, sql, make_config):
        sql("ALTER TABLE {t} ADD COLUMN amount DOUBLE")
        for routing, error, says in (
            ("plaec", errors.ColumnNotFoundError, "no column 'plaec'"),
            ("amount", errors.ConfigError, "type double cannot say"),
        ):
            with pytest.raises(error, match=says) as refused:
                export_table(spark, make_config(routing=routing))
            assert refused.value.subject == "routing"
        sql("INSERT INTO {t} VALUES (1, 'twice', 'c', 'x', NULL)")  # in another shard
        with pytest.raises(errors.DuplicateIdentifierError):
            export_table(spark, make_config(**FOUR_SHARDS))

    def it_places_rows_without_identifiers(self, spark, sql, new_index):
        config = new_index(**FOUR_SHARDS, identifier_columns=[])
        sql("INSERT INTO {t} VALUES (7001, 'new', 'e', 'x')")
        sync_changes(spark, config)
        report = validate_table(spark, config)
        assert (report.ok, report.index_documents) == (True, 21)


class DescribeTheValidation:
    def it_finds_misplaced_documents_and_repairs_them(self, spark, sql, new_index, in_place, opensearch, name):
        config = new_index(**FOUR_SHARDS)

        def put(identity, routing, version):
            body = {"id": int(identity), "name": f"row {identity}", "place": "abcde"[int(identity) % 5]}
            where = {"index": name, "id": identity, "params": {"routing": routing}}
            opensearch.index(**where | {"body": body}, version=version, version_type="external")

        put("2", "d", 99)  # beside the one in its place
        put("3", "c", 99)  # in place of it
        opensearch.delete(index=name, id="3", params={"routing": "d", "version": 99, "version_type": "external"})
        put("77", "b", 99)
        put("77", "e", 98)
        opensearch.delete(index=name, id="4", params={"routing": "e", "version": 99, "version_type": "external"})
        report = validate_table(spark, config)
        assert (report.ok, report.missing, report.extra, report.stale) == (False, 1, 2, 1)
        assert (report.missing_ids, report.extra_ids, report.stale_ids) == (["4"], ["2", "77"], ["3"])
        repaired = validate_table(spark, config.replace(repair=True))
        assert (repaired.ok, repaired.repaired) == (True, 7)
        in_place(config)
        move(sql, "e", "id IN (2, 3, 4)")
        sync_changes(spark, config)
        in_place(config)

    def it_finds_a_wrong_routing_within_the_right_shard(self, spark, new_index, opensearch, name):
        config = new_index(routing="place")
        body = {"id": 1, "name": "row 1", "place": "b", "area": "x1"}
        opensearch.index(index=name, id="1", body=body, routing='"_source":{', version=99, version_type="external")
        repaired = validate_table(spark, config.replace(repair=True))
        assert (repaired.ok, repaired.repaired) == (True, 2)
        assert placed(opensearch, name)[1][:2] == ("1", "b")


class DescribeTheIndexes:
    def it_starts_without_an_export(self, spark, sql, make_config, opensearch, name):
        config = make_config(**BY_PLACE, start_from="latest")
        sync_changes(spark, config)
        assert suffixes(opensearch, name) == [""]
        sql("UPDATE {t} SET place = 'b' WHERE id = 0")
        sync_changes(spark, config)
        assert (suffixes(opensearch, name), opensearch.count(index=name)["count"]) == (["", "a", "b"], 1)
        assert validate_table(spark, config.replace(repair=True)).ok
        assert suffixes(opensearch, name) == ["", *PLACES]

    def it_refuses_follows_and_repairs(self, spark, sql, make_config, in_place, opensearch, name):
        # A bound, and a column that is not in the document.
        with pytest.raises(errors.ConfigError, match="more than 4 indexes"):
            export_table(spark, make_config(**BY_PLACE, max_indexes=4))
        with pytest.raises(errors.ConfigError, match=r"'[a-e]' of 'place' makes the name of an index too long"):
            export_table(spark, make_config(**BY_PLACE, index=f"{name}-".ljust(226, "x")))
        with pytest.raises(errors.ColumnNotFoundError, match="no column 'place'"):
            export_table(spark, make_config(**BY_PLACE, columns=["id", "name"]))
        config = make_config(**BY_PLACE)
        bound = config.replace(max_indexes=5)
        export_table(spark, bound)
        sql("UPDATE {t} SET place = 'f' WHERE id = 1")
        with pytest.raises(errors.ConfigError, match="more than 5 indexes"):
            sync_changes(spark, bound)

        # A value that no suffix can be.
        sql("UPDATE {t} SET place = if(id = 1, 'EU', 'f') WHERE id < 3")
        with pytest.raises(errors.ConfigError, match=r"value of place .*'id': 1}.*row_filter") as refused:
            sync_changes(spark, config)
        assert refused.value.subject == "index_column"
        assert (suffixes(opensearch, name), opensearch.count(index=name)["count"]) == (["", *PLACES], 20)

        # One of them is gone.
        move(sql, "new", "id < 7")
        sync_changes(spark, config)
        (physical,) = (index for index in opensearch.indices.get(index=name) if not index[-1].isalpha())
        opensearch.indices.delete(index=f"{physical}-b")
        sql("DELETE FROM {t} WHERE id = 11")
        with pytest.raises(errors.IndexNotFoundError, match=f"{physical}-b.* is gone"):
            sync_changes(spark, config)
        export_table(spark, config)
        in_place(config)


def it_replays_a_dead_letter_at_its_place_while_its_row_is_there(spark, sql, new_index, in_place):
    config = new_index(**BOTH, mapping={"name": {"type": "keyword"}}, max_rejected_documents=9)
    sql("UPDATE {t} SET name = concat(name, repeat('x', 40000)), place = 'c' WHERE id IN (1, 2, 4)")
    report = sync_changes(spark, config)
    assert (report.rejected, report.deletes) == (3, 2)
    letters = sql(f"SELECT document_id, place FROM lake.ns.icecdc_dead_letters WHERE index = '{config.index}'")
    assert sorted(map(tuple, letters.collect())) == [("1", "c/x1"), ("2", "c/x2"), ("4", "c/x1")]
    move(sql, "d", "id = 1")
    again = sync_changes(spark, config)
    assert again.rejected == 1
    replayed = replay_dead_letters(spark, config)
    # Row 1 is not at "c" any more; the others are rejected again.
    assert replayed.steps == [{"letters": 4, "replayed": 0, "superseded": 1, "rejected": 3}]
    sql("UPDATE {t} SET name = 'short' WHERE id IN (1, 2, 4)")
    sync_changes(spark, config)
    assert replay_dead_letters(spark, config).steps[0]["rejected"] == 0
    in_place(config)
