"""An export that died goes on only where what it stands on is proven; else it starts over and says so."""

import json
from pathlib import Path

import pytest

from icecdc_core import export_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import DuplicateIdentifierError, IcecdcError, IndexNotFoundError
from tests.faults.tables import CREATE
from tests.servers.loopback_proxy import cut_off, loopback_proxy

GROUPS, ROWS = 3, 20


@pytest.fixture
def config(make_config, tmp_path):
    """One file is one group."""
    return make_config(export_group_bytes=1, retry_timeout_seconds=0, log_path=str(tmp_path / "log.jsonl"))


@pytest.fixture
def begun(request, spark, sql, config, opensearch, opensearch_url):
    """An export of 3 groups of 20 rows that died after 2 of them; yields its batch."""
    sql(CREATE, f"INSERT INTO {{t}} SELECT id, 'n' FROM range(0, {GROUPS * ROWS}, 1, {GROUPS})")
    for statement in getattr(request, "param", ()):
        sql(statement)
    with loopback_proxy(opensearch_url, trouble=cut_off(3, kind="_bulk")) as proxy, pytest.raises(IcecdcError):
        export_table(spark, config.replace(opensearch_url=proxy.url))
    batch = PositionStore(opensearch, config).read().batch
    assert batch.groups_done == 2
    return batch


def physical_indexes(opensearch, config):
    return sorted(opensearch.indices.get(index=f"{config.index}--*"))


class DescribeABegunExport:
    def it_goes_on_with_its_groups_though_the_size_of_groups_changed(self, spark, config, begun, indexed, opensearch):
        report = export_table(spark, config.replace(export_group_bytes=10**9))
        expected = ((GROUPS - 2) * ROWS, [], [begun.physical_index], GROUPS * ROWS)
        assert (report.upserts, report.notes, physical_indexes(opensearch, config), len(indexed())) == expected

    @pytest.mark.parametrize("begun", [["INSERT INTO {t} VALUES (7, 'again')"]], indirect=True)
    def it_names_rows_of_different_groups_that_share_an_identifier(self, spark, config, begun, opensearch):
        with pytest.raises(DuplicateIdentifierError, match=r"2 rows share \{'id': 7\}"):
            export_table(spark, config)
        assert (physical_indexes(opensearch, config), PositionStore(opensearch, config).read().batch) == ([], None)

    def it_starts_over_when_its_index_was_deleted(self, spark, config, begun, opensearch, indexed):
        opensearch.indices.delete(index=begun.physical_index)
        report = export_table(spark, config)
        # Everything was written, and the report and the log say why.
        assert (report.upserts, report.notes[0].count("its index was deleted")) == (GROUPS * ROWS, 1)
        assert (report.epoch > begun.epoch, len(indexed())) == (True, GROUPS * ROWS)
        entries = [json.loads(line) for line in Path(config.log_path).read_text().splitlines()]
        assert [entry["level"] for entry in entries if "starts over" in entry["message"]] == ["warning"]

    def it_leaves_the_index_that_readers_see(self, spark, config, begun, opensearch, indexed):
        # As if the run had died between moving the readers' alias and the commit.
        opensearch.indices.put_alias(index=begun.physical_index, name=config.index)
        seen = []

        def trouble(method, path, body):
            if "_bulk" in path:
                seen.append(opensearch.indices.exists(index=config.index))

        with loopback_proxy(config.opensearch_url, trouble=trouble) as proxy:
            export_table(spark, config.replace(opensearch_url=proxy.url, on_duplicate_identifier="last"))
        left = physical_indexes(opensearch, config)
        assert (set(seen), len(left), begun.physical_index in left, len(indexed())) == ({True}, 1, False, GROUPS * ROWS)


def it_publishes_no_index_that_was_replaced(spark, sql, config, opensearch, opensearch_url, indexed):
    sql(CREATE, f"INSERT INTO {{t}} SELECT id, 'n' FROM range({ROWS})")
    written = []

    def trouble(method, path, body):
        """When all documents are in, the index is deleted and created again."""
        if "_bulk" in path:
            written.append(path)
        elif method == "GET" and written and f"{config.index}--" in path:
            written.clear()
            (physical,) = physical_indexes(opensearch, config)
            opensearch.indices.delete(index=physical)
            opensearch.indices.create(index=physical, body={"aliases": {f"{physical}--WRITE": {}}})

    with (
        loopback_proxy(opensearch_url, trouble=trouble) as proxy,
        pytest.raises(IndexNotFoundError, match="created again"),
    ):
        export_table(spark, config.replace(opensearch_url=proxy.url))
    published = opensearch.indices.exists_alias(name=config.index)
    export_table(spark, config)
    assert (published, len(indexed())) == (False, ROWS)
