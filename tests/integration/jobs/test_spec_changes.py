"""A changed spec: what leaves indexed documents right is put in place, anything else needs a new index."""

from unittest import mock

import pytest

from icecdc_core import sync_changes
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import ConfigError, SchemaChangeError
from icecdc_core.opensearch import indexes

TITLE = {"type": "text", "analyzer": "standard"}


def of_index(opensearch, config):
    (entry,) = opensearch.indices.get(index=config.index).values()
    return entry["settings"]["index"], entry["mappings"]["properties"]


def it_puts_a_spec_followed_halfway_back_when_it_is_taken_back_or_refused(spark, sql, opensearch, new_index):
    config = new_index(
        "CREATE TABLE {t} (id BIGINT NOT NULL, title STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')",
        "INSERT INTO {t} SELECT id, concat('title ', id) FROM range(20)",
        mapping={"title": TITLE},
    )
    evolve = indexes.evolve_mapping

    def die(config, after):
        """Sync, and die before or after its mapping is in place."""

        def killed(*given):
            if after:
                evolve(*given)
            raise RuntimeError("killed")

        with mock.patch.object(indexes, "evolve_mapping", killed), pytest.raises(RuntimeError):
            sync_changes(spark, config)

    mapping = {"title": {**TITLE, "search_analyzer": "whitespace"}}
    for after in (False, True):
        die(config.replace(settings={"refresh_interval": "77s"}, mapping=mapping), after)
        assert of_index(opensearch, config)[0]["refresh_interval"] == "77s"
        sync_changes(spark, config)
        settings, fields = of_index(opensearch, config)
        assert ("refresh_interval" in settings, "search_analyzer" in fields["title"]) == (False, False)
        assert PositionStore(opensearch, config).read().unfinished_specs == []

    # The server refuses it.
    with pytest.raises(ConfigError, match="unknown setting"):
        sync_changes(spark, config.replace(settings={"max_result_windw": 20000}))
    with pytest.raises(SchemaChangeError, match="non dynamic"):
        sync_changes(spark, config.replace(settings={"replication.type": "SEGMENT"}))
    sync_changes(spark, config)
    assert PositionStore(opensearch, config).read().unfinished_specs == []

    # A new field cannot be put back.
    sql("ALTER TABLE {t} ADD COLUMN code STRING")
    die(config.replace(mapping={"title": TITLE, "code": {"type": "integer"}}), True)
    assert of_index(opensearch, config)[1]["code"] == {"type": "integer"}
    with pytest.raises(SchemaChangeError, match=r"code.* cannot be changed from type \[integer\] to \[text\]"):
        sync_changes(spark, config)
    assert sync_changes(spark, config.replace(on_schema_change="reexport")).strategy == "reexport"
    assert of_index(opensearch, config)[1]["code"]["type"] == "text"
    assert sync_changes(spark, config).strategy == "none"
