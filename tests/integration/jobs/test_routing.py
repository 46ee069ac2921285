"""Documents that a column routes to shards: they move with their rows, and are nowhere twice."""

import pytest
from opensearchpy.helpers import scan

from icecdc_core import errors, export_table, replay_dead_letters, sync_changes, validate_table
from icecdc_core.changes import net_changes
from icecdc_core.jobs.setup import check_setup

FOUR_SHARDS = {"routing": "place", "number_of_shards": 4}


@pytest.fixture(autouse=True)
def lake(sql):
    """20 rows, 4 in each place, in one file."""
    sql(
        "CREATE TABLE {t} (id INT, name STRING, place STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')",
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ CAST(id AS INT), concat('row ', id), substr('abcde', id % 5 + 1, 1) "
        "FROM range(20)",
    )


@pytest.fixture
def in_place(opensearch, sql, spark, name):
    """Whether every row has one document, where its row says, and nothing else is there."""

    def check(config, select="*"):
        rows = [(str(row["id"]), row["place"], row.asDict()) for row in sql(f"SELECT {select} FROM {{t}}").collect()]
        assert placed_documents(opensearch, name) == sorted(rows, key=lambda row: row[:2])
        report = validate_table(spark, config)
        assert (report.ok, report.missing, report.extra, report.stale) == (True, 0, 0, 0)

    return check


def placed_documents(client, index):
    """Id, routing and content of every document, in all shards and indexes behind the name."""
    client.indices.refresh(index=index)
    hits = [(hit["_id"], hit.get("_routing"), hit["_source"]) for hit in scan(client, index=index)]
    return sorted(hits, key=lambda hit: (hit[0], hit[1] or ""))


def move(sql, to, where):
    sql(f"UPDATE {{t}} SET place = '{to}' WHERE {where}")


def shift(sql, places):
    """Move most rows to the place that is so many after their first one."""
    sql(f"UPDATE {{t}} SET place = substr('abcde', (id + {places}) % 5 + 1, 1) WHERE id < 15")


class DescribeAMovedRow:
    def it_is_one_document_at_its_new_place(self, spark, sql, new_index, in_place, monkeypatch, tmp_path):
        """However the table is written, and though the server spreads a routing over shards."""
        monkeypatch.setattr(net_changes, "ROW_IDS_FROM_ROWS", 0)
        log = tmp_path / "log"
        config = new_index(**FOUR_SHARDS, settings={"routing_partition_size": 2}, log_path=str(log))
        in_place(config)
        for number, (version, mode) in enumerate(((2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"))):
            modes = f"'write.update.mode' = '{mode}', 'write.delete.mode' = '{mode}'"
            sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version' = '{version}', {modes})")
            shift(sql, 3 + number)
            sql("DELETE FROM {t} WHERE id = 1")
            move(sql, "c", "id = 2")
            move(sql, "e", "id = 2")
            sql(f"DELETE FROM {{t}} WHERE id = {3 + number}")
            sql(f"INSERT INTO {{t}} VALUES (1, 'again', 'e'), ({97 + number}, 'new', 'd')")
            dry = sync_changes(spark, config.replace(dry_run=True))
            report = sync_changes(spark, config)
            in_place(config)
            assert report.upserts == dry.upserts
            assert report.deletes + report.already_applied == dry.deletes
        log.unlink()
        move(sql, "a", "id < 8")
        sync_changes(spark, config)
        assert '"change_strategy": "row-ids"' in log.read_text()  # which all rows have by now
        in_place(config)

    def it_moves_where_no_document_has_its_place(self, spark, sql, new_index):
        config = new_index(**FOUR_SHARDS, select=["id", "upper(name) AS name"])
        move(sql, "b", "id < 8")
        sync_changes(spark, config)
        assert sync_changes(spark, config).upserts == 0
        report = validate_table(spark, config)
        assert (report.ok, report.index_documents) == (True, 20)

    @pytest.mark.long
    def it_is_the_last_of_several_rows(self, spark, sql, new_index, opensearch, name):
        config = new_index(**FOUR_SHARDS, on_duplicate_identifier="last")
        for place in ("e", "c", "d"):  # the greatest name is that of "c", then that of "d"
            sql(f"INSERT INTO {{t}} VALUES (1, 'row 1 {'z' if place != 'e' else ''} {place}', '{place}')")
            sync_changes(spark, config)
        sql("DELETE FROM {t} WHERE id = 1 AND place = 'd'")
        sync_changes(spark, config)
        assert [place for identity, place, _ in placed_documents(opensearch, name) if identity == "1"] == ["c"]
        assert validate_table(spark, config).ok

    def it_is_deleted_where_a_failed_batch_put_it(self, spark, sql, new_index, in_place):
        # The batch wrote an intermediate place and then some documents were rejected, so it is not repeated.
        select = ["id", "place", "replace(name, 'row ', '') AS name"]
        config = new_index(**FOUR_SHARDS, select=select, mapping={"name": {"type": "long"}})
        shift(sql, 4)
        sql("UPDATE {t} SET name = 'no number' WHERE id = 19")
        with pytest.raises(errors.RejectedDocumentsError):
            sync_changes(spark, config)
        move(sql, "d", "id < 7")
        sql("DELETE FROM {t} WHERE id IN (8, 19)")
        sync_changes(spark, config)
        in_place(config, ", ".join(select))


class DescribeTheColumn:
    def it_is_refused_if_a_row_has_no_place(self, spark, sql, make_config, in_place, opensearch, name):
        config = make_config(**FOUR_SHARDS)
        sql("INSERT INTO {t} VALUES (7002, 'new', NULL)")
        with pytest.raises(errors.ConfigError, match="'id': 7002"):
            export_table(spark, config)
        assert opensearch.indices.get(index=f"{name}--*", params={"expand_wildcards": "all"}) == {}
        sql("DELETE FROM {t} WHERE id = 7002")
        export_table(spark, config)
        before = placed_documents(opensearch, name)
        sql("INSERT INTO {t} VALUES (7001, 'new', 'a'), (7002, 'new', NULL)")
        for change in ("place = '' WHERE id = 7002", "name = 'changed' WHERE id < 10"):
            with pytest.raises(errors.ConfigError, match=r"value of place .*'id': 7002.*row_filter") as refused:
                sync_changes(spark, config)
            sql(f"UPDATE {{t}} SET {change}")
        assert refused.value.subject == "routing"
        for given in (config, config.replace(dry_run=True)):
            with pytest.raises(errors.ConfigError, match="'id': 7002"):
                export_table(spark, given)
        (problem,) = check_setup(spark, config).problems
        assert "'id': 7002" in problem
        assert placed_documents(opensearch, name) == before
        move(sql, "d", "id = 7002")
        sync_changes(spark, config.replace(change_mode="snapshot"))
        in_place(config)

    def it_needs_a_text_and_an_export_for_another(self, spark, sql, make_config, in_place, opensearch, name):
        sql("ALTER TABLE {t} ADD COLUMN amount DOUBLE")
        for routing, error, says in (
            ("plaec", errors.ColumnNotFoundError, "no column 'plaec'"),
            ("amount", errors.ConfigError, "type double cannot say"),
        ):
            with pytest.raises(error, match=says) as refused:
                export_table(spark, make_config(routing=routing))
            assert refused.value.subject == "routing"
        export_table(spark, make_config(number_of_shards=4))
        with pytest.raises(errors.SchemaChangeError, match="another routing"):
            sync_changes(spark, make_config(**FOUR_SHARDS))
        config = make_config(**FOUR_SHARDS, on_schema_change="reexport")
        sync_changes(spark, config)
        in_place(config)
        (mapping,) = opensearch.indices.get_mapping(index=name).values()
        assert mapping["mappings"]["_routing"] == {"required": True}
        sql("INSERT INTO {t} VALUES (1, 'twice', 'c', NULL)")  # in another shard
        with pytest.raises(errors.DuplicateIdentifierError):
            export_table(spark, config)

    def it_places_rows_without_identifiers(self, spark, sql, new_index):
        config = new_index(**FOUR_SHARDS, identifier_columns=[])
        sql("INSERT INTO {t} VALUES (7001, 'new', 'e')")
        sync_changes(spark, config)
        report = validate_table(spark, config)
        assert (report.ok, report.index_documents) == (True, 21)


class DescribeTheValidation:
    def it_finds_misplaced_documents_and_repairs_them(self, spark, sql, new_index, in_place, opensearch, name):
        config = new_index(**FOUR_SHARDS)
        move(sql, "a", "id = 1")
        sync_changes(spark, config)

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
        body = {"id": 1, "name": "row 1", "place": "b"}
        opensearch.index(index=name, id="1", body=body, routing='"_source":{', version=99, version_type="external")
        assert validate_table(spark, config).stale_ids == ["1"]
        assert validate_table(spark, config.replace(repair=True)).ok


def it_replays_a_dead_letter_at_its_place_while_its_row_is_there(spark, sql, new_index, in_place, opensearch):
    config = new_index(**FOUR_SHARDS, mapping={"name": {"type": "keyword"}}, max_rejected_documents=9)
    long = "concat(name, repeat('x', 40000))"
    sql(f"UPDATE {{t}} SET name = {long}, place = 'c' WHERE id IN (1, 2, 4)")
    report = sync_changes(spark, config)
    assert (report.rejected, report.deletes) == (3, 2)
    letters = sql(f"SELECT document_id, place FROM lake.ns.icecdc_dead_letters WHERE index = '{config.index}'")
    assert sorted(map(tuple, letters.collect())) == [("1", "c"), ("2", "c"), ("4", "c")]
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
