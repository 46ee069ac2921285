"""What a server says to the user's mapping before anything is written."""

import pytest

from icecdc_core import export_table
from icecdc_core.errors import ConfigError
from icecdc_core.jobs.setup import check_setup
from icecdc_core.opensearch.indexes import check_mapping
from tests.unit.documents.test_mapping import SCHEMA

REFUSED = [
    {"title": {"copy_to": "all"}}, {"title": {"type": "alias", "path": "id"}},
    {"nick": {"type": "alias", "path": "titel"}}, {"title": {"type": "no_such_type"}},
    {"title": {"analyzer": "no_such_analyzer"}}, {"scores.x": {"type": "long"}}, {"id": {"type": "geo_point"}},
    {"place": {"type": "geo_point"}}, {"place.pin": {"type": "integer_range"}}, {"flag": {"type": "long"}},
    {"place": {"type": "keyword"}}, {"people.age": {"type": "ip"}}, {"scores": {"type": "object"}},
    {"vector": {"type": "geo_shape"}}, {"day": {"format": "epoch_millis"}},
    {"at": {"type": "date", "format": "yyyy-MM-dd"}},
]  # fmt: skip
ACCEPTED = [
    {"title": {"type": "geo_point"}}, {"title": {"type": "date", "format": "dd/MM/yyyy"}},
    {"title": {"copy_to": "all"}, "all": {"type": "text"}}, {"at": {"type": "date_nanos"}},
    {"at": {"format": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"}}, {"day": {"format": "yyyy-MM-dd"}},
    {"price": {"type": "keyword"}}, {"place.pin": {"type": "geo_point"}},
    {"scores": {"type": "object", "dynamic": False}}, {"people": {"type": "nested"}}, {"any": {"type": "geo_shape"}},
    {"place": {"type": "geo_shape"}}, {"place": {"type": "completion"}}, {"vector": {"type": "geo_point"}},
    {"title": {"fields": {"day": {"type": "date"}}}}, {"id": {"type": "date", "format": "yyyy"}},
]  # fmt: skip


def it_refuses_what_no_column_fits_and_leaves_no_index(opensearch, make_config):
    config = make_config(settings={"default_pipeline": "no_such_pipeline"})
    refused = []
    for mapping in (*REFUSED, *ACCEPTED):
        try:
            check_mapping(opensearch, config.replace(mapping=mapping), SCHEMA)
        except ConfigError as error:
            refused += [mapping] if error.subject == "mapping" else []
    assert (refused, list(opensearch.indices.get(index=f"{config.index}*"))) == (REFUSED, [])


def it_stops_every_job_before_its_first_write(spark, sql, make_config, opensearch):
    sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
    config = make_config(identifier_columns=["id"], mapping={"id": {"type": "geo_point"}})
    for given in (config, config.replace(dry_run=True)):
        with pytest.raises(ConfigError, match="OpenSearch refuses a document of the table's columns"):
            export_table(spark, given)
    assert [error.subject for error in check_setup(spark, config).errors] == ["mapping"]
    assert list(opensearch.indices.get(index=f"{config.index}*")) == []
