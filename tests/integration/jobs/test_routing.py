"""Documents that a column routes to shards: they move with their rows, and are nowhere twice."""

from typing import Any

import pytest
from opensearchpy import OpenSearch
from opensearchpy.helpers import scan
from pyspark.sql import DataFrame

from icecdc_core import errors, export_table, replay_dead_letters, sync_changes, validate_table
from icecdc_core.changes import net_changes

PLACES = ("a", "b", "c", "d", "e")
FOUR_SHARDS = {"routing": "place", "number_of_shards": 4}
KINDS = {
    "v2 copy-on-write": "'format-version' = '2'",
    "v2 merge-on-read": "'format-version' = '2', 'write.update.mode' = 'merge-on-read', "
    "'write.delete.mode' = 'merge-on-read'",
    "v3 copy-on-write": "'format-version' = '3'",
}
PROPERTIES = KINDS["v2 copy-on-write"]


@pytest.fixture
def lake(sql):
    def make(properties=PROPERTIES):
        sql(f"CREATE TABLE {{t}} (id INT, name STRING, place STRING) USING iceberg TBLPROPERTIES ({properties})")
        values = ", ".join(f"({n}, 'row {n}', '{PLACES[n % 5]}')" for n in range(20))
        sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")

    return make


@pytest.fixture
def in_place(opensearch, sql, spark, name):
    """Whether every row has one document, where its row says, and nothing else is there."""

    def check(config, select="*"):
        assert placed_documents(opensearch, name) == placed_rows(sql(f"SELECT {select} FROM {{t}}"), "place")
        report = validate_table(spark, config)
        assert (report.ok, report.missing, report.extra, report.stale) == (True, 0, 0, 0)

    return check


def move(sql, to, where):
    sql(f"UPDATE {{t}} SET place = '{to}' WHERE {where}")


class DescribeAMovedRow:
    @pytest.mark.parametrize(
        ("kind", "mode"),
        [
            ("v2 copy-on-write", "net"),
            ("v2 merge-on-read", "net"),
            pytest.param("v2 copy-on-write", "snapshot", marks=pytest.mark.long),
        ],
    )
    def it_is_one_document_at_its_new_place(self, spark, sql, make_config, lake, in_place, kind, mode):
        lake(KINDS[kind])
        config = make_config(**FOUR_SHARDS, change_mode=mode)
        export_table(spark, config)
        in_place(config)
        for n, place in enumerate(PLACES):
            move(sql, place, f"id % 5 = {(n + 2) % 5} AND id < 15")
        sql("DELETE FROM {t} WHERE id = 1")
        move(sql, "c", "id = 2")
        move(sql, "e", "id = 2")
        sql("DELETE FROM {t} WHERE id = 3")
        sql("INSERT INTO {t} VALUES (1, 'again', 'e'), (99, 'new', 'd')")
        dry = sync_changes(spark, config.model_copy(update={"dry_run": True}))
        report = sync_changes(spark, config)
        in_place(config)
        assert report.upserts == dry.upserts
        assert report.deletes + report.already_applied == dry.deletes

    def it_is_found_by_row_ids(self, spark, sql, make_config, lake, in_place, monkeypatch):
        monkeypatch.setattr(net_changes, "ROW_IDS_FROM_ROWS", 0)
        lake(KINDS["v3 copy-on-write"])
        config = make_config(**FOUR_SHARDS)
        export_table(spark, config)
        move(sql, "a", "id < 8")
        sync_changes(spark, config)
        in_place(config)

    def it_moves_where_no_document_has_its_place(self, spark, sql, make_config, lake):
        lake()
        config = make_config(**FOUR_SHARDS, select=["id", "upper(name) AS name"])
        export_table(spark, config)
        move(sql, "b", "id < 8")
        sync_changes(spark, config)
        assert sync_changes(spark, config).upserts == 0
        report = validate_table(spark, config)
        assert (report.ok, report.index_documents) == (True, 20)

    @pytest.mark.long
    def it_is_the_last_of_several_rows(self, spark, sql, make_config, lake, opensearch, name):
        lake()
        config = make_config(**FOUR_SHARDS, on_duplicate_identifier="last")
        export_table(spark, config)
        for place in ("e", "c", "d"):  # the greatest name is that of "c", then that of "d"
            sql(f"INSERT INTO {{t}} VALUES (1, 'row 1 {'z' if place != 'e' else ''} {place}', '{place}')")
            sync_changes(spark, config)
        sql("DELETE FROM {t} WHERE id = 1 AND place = 'd'")
        sync_changes(spark, config)
        found = [each for each in placed_documents(opensearch, name) if each[0] == "1"]
        assert [place for _, place, _ in found] == ["c"]
        assert validate_table(spark, config).ok

    def it_is_deleted_where_a_failed_batch_put_it(self, spark, sql, make_config, lake, in_place):
        # The batch wrote an intermediate place and then some documents were rejected, so it is not repeated.
        lake()
        select = ["id", "place", "replace(name, 'row ', '') AS name"]
        config = make_config(**FOUR_SHARDS, select=select, mapping={"name": {"type": "long"}})
        export_table(spark, config)
        for n, place in enumerate(PLACES):
            move(sql, place, f"id < 15 AND id % 5 = {(n + 1) % 5}")
        sql("UPDATE {t} SET name = 'no number' WHERE id = 19")
        with pytest.raises(errors.RejectedDocumentsError):
            sync_changes(spark, config)
        move(sql, "d", "id < 7")
        sql("DELETE FROM {t} WHERE id IN (8, 19)")
        sync_changes(spark, config)
        in_place(config, "id, place, replace(name, 'row ', '') AS name")


class DescribeAMissingPlace:
    def it_is_refused_before_the_first_write(self, spark, sql, make_config, lake, in_place, opensearch, name):
        lake()
        config = make_config(**FOUR_SHARDS)
        export_table(spark, config)
        before = placed_documents(opensearch, name)
        sql("INSERT INTO {t} VALUES (7001, 'new', 'a'), (7002, 'new', NULL)")
        for change in ("place = '' WHERE id = 7002", "name = 'changed' WHERE id < 10"):
            with pytest.raises(errors.ConfigError, match=r"value of place .*'id': 7002.*row_filter") as refused:
                sync_changes(spark, config)
            sql(f"UPDATE {{t}} SET {change}")
        assert refused.value.subject == "routing"
        for job in (export_table, lambda s, c: export_table(s, c.model_copy(update={"dry_run": True}))):
            with pytest.raises(errors.ConfigError, match="'id': 7002"):
                job(spark, config)
        assert placed_documents(opensearch, name) == before
        sql("UPDATE {t} SET place = 'd' WHERE id = 7002")
        sync_changes(spark, config.model_copy(update={"change_mode": "snapshot"}))
        in_place(config)

    def it_is_refused_by_the_first_export(self, spark, sql, make_config, lake, opensearch, name):
        lake()
        sql("INSERT INTO {t} VALUES (7002, 'new', NULL)")
        with pytest.raises(errors.ConfigError, match="'id': 7002"):
            export_table(spark, make_config(**FOUR_SHARDS))
        assert opensearch.indices.get(index=f"{name}--*", params={"expand_wildcards": "all"}) == {}


class DescribeTheColumn:
    @pytest.mark.parametrize(
        ("routing", "error", "says"),
        [
            ("plaec", errors.ColumnNotFoundError, "no column 'plaec'"),
            ("amount", errors.ConfigError, "type double cannot say"),
        ],
    )
    def it_must_exist_and_have_one_text(self, spark, sql, make_config, lake, routing, error, says):
        lake()
        sql("ALTER TABLE {t} ADD COLUMN amount DOUBLE")
        with pytest.raises(error, match=says) as refused:
            export_table(spark, make_config(routing=routing))
        assert refused.value.subject == "routing"

    def it_needs_an_export_when_it_changes(self, spark, sql, make_config, lake, in_place, opensearch, name):
        lake()
        export_table(spark, make_config(number_of_shards=4))
        with pytest.raises(errors.SchemaChangeError, match="another routing"):
            sync_changes(spark, make_config(**FOUR_SHARDS))
        config = make_config(**FOUR_SHARDS, on_schema_change="reexport")
        sync_changes(spark, config)
        in_place(config)
        (mapping,) = opensearch.indices.get_mapping(index=name).values()
        assert mapping["mappings"]["_routing"] == {"required": True}

    def it_finds_rows_that_share_an_identifier_in_several_shards(self, spark, sql, make_config, lake):
        lake()
        sql("INSERT INTO {t} VALUES (1, 'twice', 'c')")
        with pytest.raises(errors.DuplicateIdentifierError):
            export_table(spark, make_config(**FOUR_SHARDS))

    def it_spreads_over_shards_by_partitions_of_the_server(self, spark, sql, make_config, lake, in_place):
        lake()
        config = make_config(**FOUR_SHARDS, settings={"routing_partition_size": 2})
        export_table(spark, config)
        move(sql, "b", "id < 8")
        sync_changes(spark, config)
        in_place(config)

    def it_places_rows_without_identifiers(self, spark, sql, make_config, lake):
        lake()
        config = make_config(**FOUR_SHARDS, identifier_columns=[])
        export_table(spark, config)
        sql("INSERT INTO {t} VALUES (7001, 'new', 'e')")
        sync_changes(spark, config)
        report = validate_table(spark, config)
        assert (report.ok, report.index_documents) == (True, 21)


class DescribeTheValidation:
    def it_finds_misplaced_documents_and_repairs_them(self, spark, sql, make_config, lake, in_place, opensearch, name):
        lake()
        config = make_config(**FOUR_SHARDS)
        export_table(spark, config)
        move(sql, "a", "id = 1")
        sync_changes(spark, config)

        def put(identity, routing, version):
            body = {"id": int(identity), "name": f"row {identity}", "place": PLACES[int(identity) % 5]}
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
        repaired = validate_table(spark, config.model_copy(update={"repair": True}))
        assert (repaired.ok, repaired.repaired) == (True, 7)
        in_place(config)
        move(sql, "e", "id IN (2, 3, 4)")
        sync_changes(spark, config)
        in_place(config)

    def it_finds_a_wrong_routing_within_the_right_shard(self, spark, make_config, lake, opensearch, name):
        lake()
        config = make_config(routing="place")
        export_table(spark, config)
        body = {"id": 1, "name": "row 1", "place": "b"}
        opensearch.index(index=name, id="1", body=body, routing='"_source":{', version=99, version_type="external")
        assert validate_table(spark, config).stale_ids == ["1"]
        assert validate_table(spark, config.model_copy(update={"repair": True})).ok


class DescribeADeadLetter:
    def it_is_replayed_at_its_place_while_its_row_is_there(self, spark, sql, make_config, lake, in_place, opensearch):
        lake()
        config = make_config(**FOUR_SHARDS, mapping={"name": {"type": "keyword"}}, max_rejected_documents=9)
        export_table(spark, config)
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


Placed = list[tuple[str, str | None, dict[str, Any]]]


def placed_documents(client: OpenSearch, index: str) -> Placed:
    """Id, routing and content of every document, in all shards and indexes behind the name."""
    client.indices.refresh(index=index)
    hits = [(hit["_id"], hit.get("_routing"), hit["_source"]) for hit in scan(client, index=index)]
    return sorted(hits, key=lambda hit: (hit[0], hit[1] or ""))


def placed_rows(rows: DataFrame, routing: str) -> Placed:
    found = [(str(row["id"]), str(row[routing]), row.asDict()) for row in rows.collect()]
    return sorted(found, key=lambda hit: (hit[0], hit[1]))
