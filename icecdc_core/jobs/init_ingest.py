"""`icecdc init-ingest`: look at Kafka topics and write an ingest file for them, with comments for a person.

In: topics and a namespace. Out: a file in which each format is an ingest, and each topic a table.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as F

from icecdc_core.errors import ConfigError, IcecdcError
from icecdc_core.ingest import offsets
from icecdc_core.ingest.config import InitIngestConfig
from icecdc_core.ingest.formats.schemas import RegisteredSchema, registered_schema
from icecdc_core.ingest.kafka import Topics, typed_error
from icecdc_core.jobs.init import InitReport, schema_line, without_secrets, write_new, yaml_text
from icecdc_core.session.job_session import with_job_session

SAMPLE_RECORDS, LONGEST = 500, 100_000
"""How many of the newest records of each partition are read, and the bytes of the longest one that is looked at."""
_OF_THE_FILE = ("job", "topics", "topic_pattern", "namespace", "route_by", "output", "format", "tables")
_FORMATS = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
_ENVELOPE = {"op", "before", "after"}


@dataclass(frozen=True)
class Topic:
    name: str
    format: str
    identifiers: list[str]
    has_deletes: bool
    op_field: str = ""
    sources: tuple[str, ...] = ()
    """The tables that the change events name."""


@with_job_session
def write_ingest_file(spark: SparkSession, config: InitIngestConfig) -> InitReport:
    """Write an ingest file for topics, from the newest records of each; secrets become references in it."""
    begin, found, skipped = time.monotonic(), dict[str, list[Topic]](), list[str]()
    known: dict[int, RegisteredSchema] = {}
    with closing(Topics(spark, config)) as topics:
        for name in topics.names():
            records = _newest(spark, config, topics, name)
            try:
                topic = describe_topic(name, records, config, known)
                found.setdefault(topic.format, []).append(topic)
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
    jobs = {base if len(found) == 1 else f"{base}-{format_}": each for format_, each in found.items()}
    given = {name: getattr(config, name) for name in sorted(config.model_fields_set) if name not in _OF_THE_FILE}
    lines = [
        schema_line(config.output, "ingests"),
        f"# Written by icecdc from up to {SAMPLE_RECORDS:,} records of each partition. Read the comments, then run it:",
        f"#   icecdc ingest --file {shlex.quote(config.output)}",
        "",
        "defaults:",
        *(f"  {name}: {yaml_text(without_secrets(value) if value else value)}" for name, value in given.items()),
        "",
        "ingests:",
        *(line for job, each in jobs.items() for line in _entry(job, each, config)),
    ]
    content = "\n".join(lines)
    write_new(config.output, content)
    seconds = round(time.monotonic() - begin, 3)
    return InitReport(config.output, [*jobs], "init-ingest", skipped, content, seconds)


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
    ids = {int.from_bytes(value[1:5], "big") for value in values if len(value) > 5 and value[0] == 0}
    if ids:
        format_, identifiers = _registered(name, max(ids), config, known), list[str]()
        return Topic(name, format_, identifiers, has_deletes or format_.startswith("debezium"))
    rows = [(key and _json(key), _json(value)) for key, value in pairs if value is not None]
    objects = [(key, row) for key, row in rows if isinstance(row, dict)]
    if not objects:
        raise ConfigError("its records are no JSON objects", subject="topics", value=name, remedy="see format")
    _, first = objects[0]
    event = first["payload"] if first.keys() == {"schema", "payload"} and first["payload"] else first
    if event.keys() >= _ENVELOPE:
        events = [row.get("payload", row) for _, row in objects]
        sources = {str(each["source"]["table"]) for each in events if (each.get("source") or {}).get("table")}
        keys = [(key, each.get("after") or each.get("before")) for (key, _), each in zip(objects, events, strict=True)]
        return Topic(name, "debezium_json", _identifiers(keys), True, "", tuple(sorted(sources)))
    if first.keys() >= {"data", "metadata"} or "Op" in first:
        own = [(key, row.get("data", row)) for key, row in objects]
        return Topic(name, "dms", _identifiers(own), True)
    op_field = "__op" if "__op" in first else ""
    return Topic(name, "json", _identifiers(objects), has_deletes or bool(op_field), op_field)


def _registered(name: str, number: int, config: InitIngestConfig, known: dict[int, RegisteredSchema]) -> str:
    if not config.schema_registry_url:
        raise ConfigError(
            "its records name schemas of a registry",
            subject="schema_registry_url",
            value=name,
            remedy="set schema_registry_url",
        )
    schema = registered_schema(number, known, config.schema_registry_url, config.schema_registry_auth)
    if isinstance(schema, str):
        raise ConfigError(schema, subject="schema_registry_url", value=name, remedy="check the registry")
    if schema.kind == "AVRO" and all(f'"{part}"' in schema.text for part in _ENVELOPE):
        return "debezium_avro"
    return _FORMATS.get(schema.kind, "avro")


def _json(data: bytes) -> Any:
    with suppress(ValueError):
        return json.loads(data)
    return data.decode("utf-8", "replace")


def _identifiers(pairs: list[tuple[Any, Any]]) -> list[str]:
    """The fields of all keys, or the fields whose values are the keys."""
    keyed = [(key, row) for key, row in pairs if key is not None and isinstance(row, dict)]
    if not keyed:
        return []
    first, row = keyed[0]
    if isinstance(first, dict):
        own = first["payload"] if first.keys() == {"schema", "payload"} else first
        if isinstance(own, dict):
            return list(own)
        keyed = [(key["payload"], row) for key, row in keyed]
    same = [name for name in row if all(str(each.get(name)) == str(key) for key, each in keyed)]
    return same[:1]


def _entry(job: str, topics: list[Topic], config: InitIngestConfig) -> list[str]:
    names, op_fields = [each.name for each in topics], sorted({each.op_field for each in topics} - {""})
    lines = [
        "",
        f"  {yaml_text(job)}:  # its name must not change: under another name all records are read again",
        f"    topics: {yaml_text(names)}",
        f"    format: {topics[0].format}",
        *(f"    op_field: {name}" for name in op_fields[:1]),
        "    route_by: topic",
        f"    namespace: {yaml_text(config.namespace)}",
        *([] if config.auto_create else ["    auto_create: true"]),
        "    tables:",
    ]
    for topic in topics:
        lines.append(f"      {yaml_text(topic.name)}:")
        if len(topic.sources) > 1:
            shown = ", ".join(topic.sources[:5])
            lines.append(f"        # It has events of {len(topic.sources)} tables: {shown}. To make a table of each:")
            lines.append("        #   route_by: expression, and route: source.table")
        mode = "upsert" if topic.has_deletes and topic.identifiers else "append"
        if topic.has_deletes and not topic.identifiers:
            lines.append("        # It has deletes. To apply them, set mode: upsert and identifier_columns.")
        lines.append(f"        mode: {mode}")
        if topic.identifiers:
            lines.append(f"        identifier_columns: {yaml_text(topic.identifiers)}  # by the keys")
    return lines
