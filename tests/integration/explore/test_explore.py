"""The exploration on real tables of every kind, and a real index."""

import json

import pytest

from icecdc_core import export_table, rollback_index, sync_changes
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import ConfigError
from icecdc_core.explore.config import ExplainConfig, ExploreConfig
from icecdc_core.explore.differences import find_differences
from icecdc_core.explore.documents import explain, look_up_document, try_query
from icecdc_core.explore.report import dry_run_next_sync, explore_report
from icecdc_core.explore.view import Part, open_view, show_time_line

SECRET = "planted-secret"


def made(partitioned="region", properties="'format-version' = '2'"):
    return (
        "CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, email STRING, region STRING) USING iceberg "
        f"PARTITIONED BY ({partitioned}) TBLPROPERTIES ({properties})",
        f"INSERT INTO {{t}} SELECT id, concat('n', id), concat('{SECRET}', id), if(id % 2 = 0, 'north', 'south') "
        "FROM range(20)",
    )


def explore(config, **parameters):
    given = {name: getattr(config, name) for name in config.model_fields_set}
    return ExploreConfig(**{**given, **parameters})


def parts_of(view):
    differences = find_differences(view)
    return show_time_line(view), differences, look_up_document(view, differences), try_query(view)


def shown(spark, config):
    """Everything a notebook shows of it: the parts, and the whole as one text."""
    view = open_view(spark, config)
    line, *others = parts_of(view)
    parts = [line, dry_run_next_sync(view), *others]
    texts = [part._repr_html_() for part in parts]
    return *parts, "".join(texts) + json.dumps(explore_report(view, *parts))


def look_up(spark, config, **parameters):
    return look_up_document(open_view(spark, explore(config, **parameters)), Part({}, []))


def rows(part, table=-1):
    return part.shown[table].to_numpy().tolist()


def counts(differences):
    return tuple(differences.report[name] for name in ("inserts", "updates", "deletes"))


def fields_of(document):
    """What the index and the table have of each field."""
    return dict(rows(document, 2))


def changes_of(document):
    return document.shown[4]["change"].tolist()


class DescribeATableAndItsIndex:
    def it_is_shown_from_the_index_to_the_current_snapshot(self, spark, sql, new_index, opensearch):
        config = new_index(*made(properties="'format-version' = '3'"))
        opensearch.indices.refresh(index=config.index)
        sql("UPDATE {t} SET name = 'new' WHERE id = 3", "DELETE FROM {t} WHERE id = 4")
        sql("INSERT INTO {t} VALUES (50, 'fifty', 'e', 'north')", "UPDATE {t} SET name = 'newer' WHERE id = 3")
        opensearch.indices.refresh(index=config.positions_index)
        before = opensearch.search(index=config.positions_index)["hits"]["hits"]
        line, sync, differences, document, hits, _ = shown(spark, explore(config))

        assert line.shown[-2]["what"].tolist() == ["main", "", "", "", "the index"]
        assert (sync.upserts, sync.deletes, sync.snapshots) == (2, 1, 4)
        assert (counts(differences), list(differences.shown[-1])[2:]) == ((1, 1, 1), ["name", "id", "email", "region"])
        assert rows(differences) == [
            ["update", "3", "n3 → newer", "3", f"{SECRET}3", "south"],
            ["insert", "50", "fifty", "50", "e", "north"],
            ["delete", "4", "n4", "4", f"{SECRET}4", "north"],
        ]
        assert (document.report["document_id"], document.report["agrees"]) == ("3", False)
        assert fields_of(document) == {"id": "3", "name": "n3 → newer", "email": f"{SECRET}3", "region": "south"}
        history = document.shown[-1][["change", "name"]].to_numpy().tolist()
        assert history == [["update", "new → newer"], ["update", "n3 → new"], ["insert", "n3"]]
        assert (hits.report["hits"], len(rows(hits))) == (20, 20)
        assert opensearch.search(index=config.positions_index)["hits"]["hits"] == before


class DescribeADocument:
    def it_is_found_by_its_id(self, spark, new_index):
        config = new_index(
            "CREATE TABLE {t} (k STRING NOT NULL, at TIMESTAMP NOT NULL, n INT) USING iceberg",
            "INSERT INTO {t} SELECT 'a|' || id, TIMESTAMP '2026-01-03 10:00:00Z', id FROM range(5)",
            "UPDATE {t} SET n = 9 WHERE n = 3",
            identifier_columns=["k", "at"],
        )
        found = look_up(spark, config, document_id=r"a\|3|2026-01-03T10:00:00.000000Z")
        assert (found.report["agrees"], found.shown[1]) == (True, "The index and the table agree.")
        assert changes_of(found) == ["update", "insert"]

    def it_is_behind_when_a_nested_table_is_newer(self, spark, new_index, make_shop):
        shop = make_shop(tables=("film", "language"))
        config = new_index(**shop.spec)
        assert look_up(spark, config, document_id="1").report["agrees"] is True
        shop.sql("UPDATE {language} SET name = 'Anglais' WHERE language_id = 1")
        view = open_view(spark, explore(config, document_id="1"))
        line, found = show_time_line(view), look_up_document(view, Part({}, []))
        staged = [name for table in view.source.tables for name in table._staged]
        assert (found.report["agrees"], "is behind the table" in found.shown[1], staged) == (False, True, [])
        before, after = fields_of(found)["language"].split(" → ")
        assert (json.loads(before)["name"], json.loads(after)["name"]) == ("English", "Anglais")
        assert "rows of 1 other tables, whose changes are not shown here" in found.shown[3]
        assert changes_of(found) == ["insert"]
        ((language, *snapshots),) = rows(line)
        assert (language, len({*snapshots})) == (shop.table("language"), 2)
        assert all(f">{each}<" in line._repr_html_() for each in snapshots)

    def it_is_only_in_the_index_or_only_in_the_table_and_a_query_has_hits(self, spark, sql, new_index, opensearch):
        config = new_index(*made())
        opensearch.indices.refresh(index=config.index)
        # Of rows and documents that other parameters made nothing is shown that these hide.
        hiding = explore(config, row_filter="id <> 3", document_id="3", query="id:3")
        assert f"{SECRET}3" not in "".join(part._repr_html_() for part in parts_of(open_view(spark, hiding)))
        sql("UPDATE {t} SET name = 'x' WHERE id = 3")
        hiding = explore(config, select=["id", "sha2(email, 256) AS email"], document_id="3")
        *_, document, hits = parts = parts_of(open_view(spark, hiding))
        text = "".join(part._repr_html_() for part in parts)
        assert (SECRET in text, "built with other columns or another select" in text) == (False, True)
        assert (fields_of(document)["id"], hits.report["hits"]) == ("null → 3", None)
        sql("DELETE FROM {t} WHERE id = 3", "INSERT INTO {t} VALUES (50, 'fifty', 'e', 'north')")
        verdicts = {each: look_up(spark, config, document_id=each).shown[1][:19] for each in ("3", "50", "seven")}
        assert verdicts == {"3": "Only the index has ", "50": "Only the table has ", "seven": "Neither the index n"}
        found = try_query(open_view(spark, explore(config, query="region:north AND id:<9", sample_rows=2)))
        assert (found.report["hits"], len(rows(found))) == (5, 2)
        found = try_query(open_view(spark, explore(config, query='{"ids": {"values": ["7"]}}')))
        assert found.shown[-1][["_id", "name"]].to_numpy().tolist() == [["7", "n7"]]
        for query in ('{"no_such_query": {}}', "name:("):
            with pytest.raises(ConfigError, match="OpenSearch refuses the query") as caught:
                try_query(open_view(spark, explore(config, query=query)))
            assert f"query={query!r}" in str(caught.value)


def it_does_not_show_what_parameters_hide(spark, sql, make_config, opensearch, name):
    sql(*made(partitioned="email, truncate(14, email)"))
    masked = make_config(select=["* EXCEPT (email)", "sha2(email, 256) AS email"])
    export_table(spark, masked)
    opensearch.indices.refresh(index=masked.index)
    sql(f"UPDATE {{t}} SET name = concat(name, '!'), email = concat('{SECRET}-other', id) WHERE id < 5")
    sql("DELETE FROM {t} WHERE id = 7")
    renamed = make_config(index=f"{name}-owner", select=["* EXCEPT (email)", "sha2(email, 256) AS owner"])
    for config in (masked, renamed, make_config(index=f"{name}-none", columns=["id", "name"])):
        *_, text = shown(spark, explore(config, query="*", from_snapshot="-2", document_id="3"))
        text += find_differences(open_view(spark, explore(config, from_snapshot="earliest")))._repr_html_()
        assert (SECRET in text, "n3!" in text) == (False, True), config


class DescribeWhatIsMissing:
    def it_is_said_of_a_table_without_an_index(self, spark, sql, make_config):
        sql(*made(), "DELETE FROM {t} WHERE id = 3")
        line, sync, differences, document, hits, _ = shown(spark, explore(make_config()))
        assert "nothing was exported" in line._repr_html_()
        assert (sync.strategy, sync.upserts) == ("export", 19)
        assert (counts(differences), changes_of(document)[0]) == ((0, 0, 1), "delete")
        assert (document.report["agrees"], hits.report["hits"]) == (None, None)
        # A document is found under an earlier name of its column.
        sql("ALTER TABLE {t} RENAME COLUMN id TO number", "UPDATE {t} SET name = 'x' WHERE number = 5")
        found = look_up(spark, make_config(identifier_columns=["number"]), document_id="5")
        assert (changes_of(found), fields_of(found)["name"]) == (["update", "insert"], "x")


def it_says_which_snapshot_deleted_a_document_when_the_index_followed_and_that_none_has_its_id(
    spark, sql, new_index, opensearch, snapshots, name
):
    config = new_index(*made(), identifier_columns=["region", "id"], number_of_shards=3, index_column="region")
    for statement in ("UPDATE {t} SET name = 'x' WHERE id = 7", "DELETE FROM {t} WHERE id IN (7, 8)"):
        sql(statement)
        sync_changes(spark, config)
    sql("DELETE FROM {t} WHERE id = 9")  # not synced
    given = {each: getattr(config, each) for each in config.model_fields_set}

    def explained(identity):
        report = explain(spark, ExplainConfig(**given, id=identity))
        return report, [(each["change"], each["snapshot_id"], each["epoch"]) for each in report.changes]

    report, changes = explained("south|7")
    first, second, third, fourth = snapshots()
    assert changes == [("delete", third, 3), ("update", second, 2), ("insert", first, 1)]
    log = {entry["epoch"]: entry["updated_at"] for entry in PositionStore(opensearch, config).log()}
    assert [each["followed_at"] for each in report.changes] == [log[3], log[2], log[1]]
    assert (report.in_table, report.documents) == (False, [])
    report, changes = explained("south|9")
    assert (changes[0], report.in_table, len(report.documents)) == (("delete", fourth, None), False, 1)
    # Somebody else wrote it again, to another index and shard than a row of this id would have.
    opensearch.index(
        index=f"{report.documents[0]['_index'].removesuffix('south')}north", id="south|7", routing="r", body={}
    )
    spark.sql(f"CALL lake.system.expire_snapshots('ns.{name}', TIMESTAMP '2999-01-01 00:00:00', 2)").collect()
    report, changes = explained("south|7")
    assert (changes, [each["_routing"] for each in report.documents]) == ([], ["r"])
    assert f"up to snapshot {third} is not known" in report.searched


def it_says_which_snapshots_of_nested_tables_changed_rows_of_a_document(spark, new_index, make_shop):
    shop = make_shop()
    config = new_index(**shop.spec)
    changes = {
        "UPDATE {country} SET name = 'Espana' WHERE country_id = 100": ("country", "update", 2),
        "UPDATE {film} SET language_id = 2, original_id = 1 WHERE film_id = 1": ("film", "update", 3),
        "DELETE FROM {film_actor} WHERE actor_id = 11": ("film_actor", "delete", 4),
        "DELETE FROM {language} WHERE language_id > 0": ("language", "delete", 5),
        # What this document does not have: a row of another one, and a column.
        "UPDATE {actor} SET name = 'Cyd' WHERE actor_id = 12": None,
        "UPDATE {actor} SET note = 'y'": None,
    }
    for statement in changes:
        shop.sql(statement)
        sync_changes(spark, config)
    shop.sql("UPDATE {actor} SET name = 'Anna' WHERE actor_id = 10")  # not synced
    given = {each: getattr(config, each) for each in config.model_fields_set}
    report = explain(spark, ExplainConfig(**given, id="1"))
    found = [(each["table"].split("_", 2)[-1], each["change"], each["epoch"]) for each in report.changes]
    first = [(table, "insert", 1) for table in reversed(shop.tables)]
    assert found == [("actor", "update", None), *reversed([each for each in changes.values() if each]), *first]
    assert f"{shop.table('actor')}: 4 snapshots were searched." in report.searched


def it_names_no_batch_for_what_an_index_that_began_later_was_not_sent(spark, make_config, make_shop):
    shop = make_shop()
    config = make_config(**shop.spec, start_from="latest")
    sync_changes(spark, config)
    for name in ("Espana", "Spain"):
        shop.sql(f"UPDATE {{country}} SET name = '{name}' WHERE country_id = 100")
        epoch = sync_changes(spark, config).epoch
    given = {each: getattr(config, each) for each in config.model_fields_set}
    report = explain(spark, ExplainConfig(**given, id="1"))
    found = [(each["change"], each["epoch"]) for each in report.changes]
    assert found == [("update", epoch), ("update", epoch - 1), *[("insert", None)] * len(shop.tables)]


def it_shows_what_an_index_kept_for_a_rollback_has_and_no_batch_of_one_left(spark, sql, new_index, opensearch):
    longer = "UPDATE {t} SET name = repeat('n', 600) WHERE id = 7"
    config = new_index(*made(), longer, identifier_columns=["name"], keep_index="7d")
    (first,) = opensearch.indices.get_alias(name=config.index)
    export_table(spark, config)
    sql("DELETE FROM {t} WHERE id = 7")
    sync_changes(spark, config)
    of_row = ExplainConfig(**{each: getattr(config, each) for each in config.model_fields_set}, id="n" * 600)
    assert [each["_index"] for each in explain(spark, of_row).documents] == [first]
    rollback_index(spark, config)
    epoch, report = sync_changes(spark, config).epoch, explain(spark, of_row)
    assert (report.documents, [each["epoch"] for each in report.changes]) == ([], [epoch, 2])
