"""Every write is a check: whether OpenSearch had the document must agree with what the changes say of its row."""

from unittest import mock

import pytest

from icecdc_core import export_table, status, sync_changes, validate_table
from icecdc_core.errors import DuplicateIdentifierError
from icecdc_core.jobs import sync
from icecdc_core.runs.batch import write_batch
from tests.given.broken_runs import Killed
from tests.servers.loopback_proxy import Act, at_first, loopback_proxy

CREATE = "CREATE TABLE {t} (id INT, v STRING, region STRING) USING iceberg TBLPROPERTIES ('format-version'='2', %s)"
MODES = {
    mode: ", ".join(f"'write.{operation}.mode'='{mode}'" for operation in ("delete", "update", "merge"))
    for mode in ("copy-on-write", "merge-on-read")
}
COMPACT = "CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"
FIRST = "INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'y')"
AGAIN = "INSERT INTO {t} VALUES (2, 'c', 'y'), (3, 'd', 'x')"
MEND = "DELETE FROM {t} WHERE v = 'b'"
ROUTED, SUFFIXED = {"routing": "region", "number_of_shards": 3}, {"index_column": "region"}


def table(mode: str) -> str:
    return CREATE % MODES[mode]


def synced(spark, config, **overrides):
    return sync_changes(spark, config.model_copy(update=overrides))


class DescribeADuplicateFromOutsideTheRange:
    @pytest.mark.parametrize(("mode", "places"), [("copy-on-write", {}), ("merge-on-read", {**ROUTED, **SUFFIXED})])
    def it_is_refused_until_the_table_is_mended(self, spark, sql, new_index, indexed, mode, places):
        config = new_index(table(mode), FIRST, **places)
        sql(AGAIN)
        with pytest.raises(DuplicateIdentifierError, match="example 2:"):
            synced(spark, config)
        with pytest.raises(DuplicateIdentifierError):
            synced(spark, config)
        sql(COMPACT, MEND)
        synced(spark, config)
        assert {key: row["v"] for key, row in indexed().items()} == {"1": "a", "2": "c", "3": "d"}
        assert validate_table(spark, config).ok

    def it_is_looked_up_where_an_answer_was_lost(self, spark, sql, new_index):
        config = new_index(table("copy-on-write"), FIRST)
        sql(AGAIN)
        lost = at_first("_bulk", lambda: Act.RESET_AFTER)
        with loopback_proxy(config.opensearch_url, trouble=lost) as proxy, pytest.raises(DuplicateIdentifierError):
            synced(spark, config, opensearch_url=proxy.url)

    def it_is_looked_up_when_the_last_row_counted_before(self, spark, sql, new_index, indexed):
        config = new_index(table("copy-on-write"), FIRST, AGAIN, on_duplicate_identifier="last")
        found = validate_table(spark, config.replace(on_duplicate_identifier="fail"))
        shown = found.ok, found.source_rows, found.index_documents, found.stale_ids
        assert (validate_table(spark, config).ok, *shown) == (True, False, 4, 3, ["2"])
        sql("INSERT INTO {t} VALUES (4, 'e', 'x')")
        with pytest.raises(DuplicateIdentifierError):
            synced(spark, config, on_duplicate_identifier="fail")
        sql(MEND)
        synced(spark, config, on_duplicate_identifier="fail")
        assert {key: row["v"] for key, row in indexed().items()} == {"1": "a", "2": "c", "3": "d", "4": "e"}

    def it_is_found_by_the_run_that_repeats_a_batch(self, spark, sql, new_index, indexed):
        config = new_index(table("merge-on-read"), FIRST)
        sql(AGAIN)

        def write(run, lock, actions):
            with pytest.raises(DuplicateIdentifierError):
                write_batch(run, lock, actions)
            raise Killed

        with mock.patch.object(sync, "write_batch", write), pytest.raises(Killed):
            synced(spark, config)
        with pytest.raises(DuplicateIdentifierError):
            synced(spark, config)
        sql(MEND)
        synced(spark, config)
        assert indexed()["2"]["v"] == "c"


class DescribeDrift:
    @pytest.mark.parametrize(("mode", "places"), [("copy-on-write", {}), ("merge-on-read", {**ROUTED, **SUFFIXED})])
    def it_is_reported_by_the_run_that_meets_it(self, spark, sql, new_index, opensearch, mode, places):
        rows = "INSERT INTO {t} SELECT id, concat('v', id), if(id % 2 = 0, 'x', 'y') FROM range(10)"
        config = new_index(table(mode), rows, **places)
        gone = {"query": {"ids": {"values": ["3", "4", "5"]}}}
        opensearch.delete_by_query(index=config.index, body=gone, params={"refresh": "true"})
        sql("UPDATE {t} SET v = 'new' WHERE id IN (3, 7)", "DELETE FROM {t} WHERE id IN (4, 8)")
        report = synced(spark, config)
        assert (report.drifted, sorted(report.drifted_ids), report.state) == (2, ["3", "4"], "ok")
        (found,) = (each for each in status(spark, config).indexes if each.index == config.index)
        assert (found.state, found.drifted) == ("differs", 2)
        assert validate_table(spark, config.model_copy(update={"repair": True})).ok
        (found,) = (each for each in status(spark, config).indexes if each.index == config.index)
        assert (found.state, found.drifted) == ("ok", 0)

    def it_is_seen_of_documents_of_several_tables(self, spark, make_shop, make_config, opensearch):
        shop = make_shop(tables=("film", "language"))
        config = make_config(**shop.spec)
        export_table(spark, config)
        gone = {"query": {"ids": {"values": ["1", "3"]}}}
        opensearch.delete_by_query(index=config.index, body=gone, params={"refresh": "true"})
        shop.sql("UPDATE {language} SET name = 'Anglais' WHERE language_id = 1", "DELETE FROM {film} WHERE film_id = 3")
        shop.sql("INSERT INTO {film} VALUES (5, 'Eva', 1, 1, '')")
        assert sorted(synced(spark, config).drifted_ids) == ["1", "3"]
        assert validate_table(spark, config).ok
        assert {each.state for each in status(spark, config).indexes if each.index == config.index} == {"ok"}

    def it_is_none_where_the_index_began_without_the_documents(self, spark, sql, make_config):
        sql(table("copy-on-write"), FIRST)
        config = make_config(start_from="latest")
        synced(spark, config)
        sql("UPDATE {t} SET v = 'new' WHERE id = 1", "DELETE FROM {t} WHERE id = 2")
        assert synced(spark, config).drifted == 0
