"""`icecdc init-ingest`: the ingest file of topics that nobody described."""

import pytest
import yaml

from icecdc_core.errors import ConfigError
from icecdc_core.ingest import IngestConfig, ingest
from icecdc_core.ingest.config import InitIngestConfig
from icecdc_core.jobs.init_ingest import write_ingest_file


def event(op, table, before, after):
    return {"op": op, "before": before, "after": after, "source": {"table": table, "lsn": 1}}


def it_writes_a_file_that_ingests_the_topics(spark, kafka, topic, warehouse, name, tmp_path):
    new = type(topic)
    topic.send({"id": 1, "v": "x"}, {"id": 2, "v": "y"})
    topic.send(None, key="1")
    changes, avro, text = new(kafka), new(kafka), new(kafka)
    changes.send(event("c", "a", None, {"n": 1}), key='{"n": 1}')
    changes.send(event("c", "b", None, {"n": 2}), key='{"n": 2}')
    avro.send(b"\0\0\0\0\1\2")
    text.send("no object")
    listed, output = [topic.name, changes.name, avro.name, text.name], tmp_path / "ingests.yml"
    given = {"bootstrap_servers": kafka, "warehouse": str(warehouse), "namespace": f"lake.{name}"}
    report = write_ingest_file(spark, InitIngestConfig(topics=listed, output=str(output), **given))
    assert report.indexes == [f"{name}-json", f"{name}-debezium_json"]
    assert [each.partition(":")[0] for each in report.skipped] == [avro.name, text.name]
    assert "It has events of 2 tables: a, b." in report.content
    tables = [entry["tables"] for entry in yaml.safe_load(output.read_text())["ingests"].values()]
    keys = {"mode": "upsert", "identifier_columns": ["id"]}
    assert tables == [{topic.name: keys}, {changes.name: {**keys, "identifier_columns": ["n"]}}]
    for config in IngestConfig.load_all(output).values():
        ingest(spark, config)
    rows = [spark.table(f"lake.{name}.{each.name}").count() for each in (topic, changes)]
    assert rows == [1, 2]


def it_refuses_topics_without_records(spark, kafka, topic, warehouse, tmp_path):
    given = {"namespace": "lake.x", "warehouse": str(warehouse), "output": str(tmp_path / "ingests.yml")}
    with pytest.raises(ConfigError, match="No topic has records that can be ingested"):
        write_ingest_file(spark, InitIngestConfig(topics=topic.name, bootstrap_servers=kafka, **given))
