"""`icecdc init-ingest`: look at Kafka topics and write an ingest file for them, with comments for a person.

In: topics and a namespace. Out: a file in which each format is an ingest, and each topic a table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as F

from icecdc_core.errors import ConfigError, IcecdcError
from icecdc_core.ingest import offsets
from icecdc_core.ingest.config import InitIngestConfig
from icecdc_core.ingest.formats.schemas import RegisteredSchema, registered_schema
from icecdc_core.ingest.kafka import Topics, typed_error
from icecdc_core.jobs.init import InitReport, write_file, yaml_text
from icecdc_core.session.job_session import with_job_session

SAMPLE_RECORDS, LONGEST = 500, 100_000
"""How many of the newest records of each partition are read, and the bytes of the longest one that is looked at."""
_OF_THE_FILE = ("job", "topics", "topic_pattern", "namespace", "route_by", "output", "format", "tables")
_FORMATS = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
_ENVELOPE = {"op", "before", "after"}


@dataclass(frozen=True)
class Topic:
    """What the records of a topic are; `sources`: the tables that change events name."""

    format: str
    identifiers: list[str]
    has_deletes: bool
    op_field: str = ""
    sources: list[str] = field(default_factory=list)


@with_job_session
def write_ingest_file(spark: SparkSession, config: InitIngestConfig) -> InitReport:
    """Write an ingest file for topics, from the newest records of each; secrets become references in it."""
    begin, found, skipped = time.monotonic(), dict[str, dict[str, Topic]](), list[str]()
    known: dict[int, RegisteredSchema] = {}
    with closing(Topics(spark, config)) as topics:
        for name in topics.names():
            records = _newest(spark, config, topics, name)
            try:
                topic = describe_topic(name, records, config, known)
                found.setdefault(topic.format, {})[name] = topic
            except IcecdcError as error:
                skipped.append(f"{name}: {error}")
    if not found:
        raise ConfigError(
            f"No topic has records that can be ingested. {' '.join(skipped)}",
            subject="topics",
            value=config.topics or config.topic_pattern,
            remedy="name topics with records in one of the formats of docs/kafka-formats.md",
        )
    base = config.namespace.rpartition(".")[2].strip("`")
    jobs = {base if len(found) == 1 else f"{base}-{each}": _entry(each, found[each], config) for each in found}
    given = {name: getattr(config, name) for name in sorted(config.model_fields_set) if name not in _OF_THE_FILE}
    sampled = f"{SAMPLE_RECORDS:,} records of each partition"
    content = write_file(config.output, "ingests", "ingest", sampled, given, jobs)
    return InitReport(
        config.output, [*jobs], "init-ingest", skipped, content, seconds=round(time.monotonic() - begin, 3)
    )


def _newest(
    spark: SparkSession, config: InitIngestConfig, topics: Topics, name: str
) -> list[tuple[bytes | None, bytes | None]]:
    earliest, latest = topics.earliest([name]), topics.latest([name])
    start = {name: {part: max(end - SAMPLE_RECORDS, earliest[name][part]) for part, end in latest[name].items()}}
    options = {
        **{f"kafka.{key}": value for key, value in config.client_properties.items()},
        "subscribe": name,
        "startingOffsets": offsets.to_json(start),
        "endingOffsets": offsets.to_json(latest),
    }
    size = F.octet_length("value") + F.octet_length("key")
    records = spark.read.format("kafka").options(**options).load().where(F.coalesce(size, F.lit(0)) < LONGEST)
    try:
        sample = records.orderBy(F.desc("offset")).select("key", "value").limit(SAMPLE_RECORDS).collect()
    except (PySparkException, Py4JError) as error:
        raise typed_error(error, config.bootstrap_servers) from error
    return [(key and bytes(key), value and bytes(value)) for key, value in sample]


def describe_topic(
    name: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    config: InitIngestConfig,
    known: dict[int, RegisteredSchema],
) -> Topic:
    """Say what a topic's records are: their format, and what identifies a row."""
    pairs = list(records)
    values = [value for _, value in pairs if value is not None]
    if not values:
        raise ConfigError("it has no records", subject="topics", value=name, remedy="describe it by hand")
    has_deletes = len(values) < len(pairs)
    ids = [int.from_bytes(value[1:5], "big") for value in values if len(value) > 5 and value[0] == 0]
    if ids:
        kind = _registered(name, max(ids), config, known)
        return Topic(kind, [], has_deletes or kind.startswith("debezium"))
    parsed = ((key and _json(key), _json(value)) for key, value in pairs if value is not None)
    rows = [(key, row) for key, row in parsed if isinstance(row, dict)]
    if not rows:
        raise ConfigError("its records are no JSON objects", subject="topics", value=name, remedy="see format")
    first = rows[0][1]
    if first.keys() >= _ENVELOPE:
        sources = {str(row["source"]["table"]) for _, row in rows if (row.get("source") or {}).get("table")}
        own = [(key, row.get("after") or row.get("before")) for key, row in rows]
        return Topic("debezium_json", _identifiers(own), True, sources=sorted(sources))
    if first.keys() >= {"data", "metadata"} or "Op" in first:
        return Topic("dms", _identifiers([(key, row.get("data", row)) for key, row in rows]), True)
    op_field = "__op" if "__op" in first else ""
    return Topic("json", _identifiers(rows), has_deletes or bool(op_field), op_field)


def _registered(name: str, number: int, config: InitIngestConfig, known: dict[int, RegisteredSchema]) -> str:
    problem, remedy = "its records name schemas of a registry", "set schema_registry_url"
    if config.schema_registry_url:
        schema = registered_schema(number, known, config.schema_registry_url, config.schema_registry_auth)
        if not isinstance(schema, str):
            is_event = schema.kind == "AVRO" and all(f'"{part}"' in schema.text for part in _ENVELOPE)
            return "debezium_avro" if is_event else _FORMATS.get(schema.kind, "avro")
        problem, remedy = schema, "check the registry"
    raise ConfigError(problem, subject="schema_registry_url", value=name, remedy=remedy)


def _json(data: bytes) -> Any:
    """A value in JSON, without a `schema` part around it; other text as it is."""
    with suppress(ValueError):
        value = json.loads(data)
        is_around = isinstance(value, dict) and value.keys() == {"schema", "payload"}
        return value["payload"] if is_around else value
    return data.decode("utf-8", "replace")


def _identifiers(pairs: list[tuple[Any, Any]]) -> list[str]:
    """The fields of all keys, or the field whose values are the keys."""
    keyed = [(key, row) for key, row in pairs if key is not None and isinstance(row, dict)]
    if not keyed:
        return []
    first, row = keyed[0]
    if isinstance(first, dict):
        return list(first)
    return [name for name in row if all(str(each.get(name)) == str(key) for key, each in keyed)][:1]


def _entry(kind: str, topics: dict[str, Topic], config: InitIngestConfig) -> list[str]:
    op_fields = sorted({each.op_field for each in topics.values()} - {""})
    lines = [
        "    # The name above must not change: under another name all records are read again.",
        f"    topics: {yaml_text([*topics])}",
        f"    format: {kind}",
        *(f"    op_field: {name}" for name in op_fields[:1]),
        "    route_by: topic",
        f"    namespace: {yaml_text(config.namespace)}",
        *([] if config.auto_create else ["    auto_create: true"]),
        "    tables:",
    ]
    for name, topic in topics.items():
        lines.append(f"      {yaml_text(name)}:")
        if len(topic.sources) > 1:
            shown = ", ".join(topic.sources[:5])
            lines.append(f"        # It has events of {len(topic.sources)} tables: {shown}. To make a table of each:")
            lines.append("        #   route_by: expression, and route: source.table")
        if topic.has_deletes and not topic.identifiers:
            lines.append("        # It has deletes. To apply them, set mode: upsert and identifier_columns.")
        lines.append(f"        mode: {'upsert' if topic.has_deletes and topic.identifiers else 'append'}")
        if topic.identifiers:
            lines.append(f"        identifier_columns: {yaml_text(topic.identifiers)}  # by the keys")
    return lines
