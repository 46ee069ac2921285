"""Records in Confluent's wire format: a zero byte, the ID of the writer's schema in four bytes, the data.

The format is described in Confluent's Schema Registry documentation, "Wire format".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats import debezium, json_schemas
from icecdc_core.ingest.formats.avro import AvroSchema, require_avro
from icecdc_core.ingest.formats.decode_results import (
    PAYLOAD_OPTIONS,
    FormatSettings,
    decode_by_schema,
    decode_result,
    evaluate_once,
)
from icecdc_core.ingest.formats.logical_types import LogicalType, column_type, to_payload
from icecdc_core.ingest.formats.record_keys import delete_by_key, delete_by_single_key
from icecdc_core.ingest.formats.registry import RegisteredSchema, SchemaRegistry

HEADER_BYTES = 5
_MAX_BYTES = (1 << 31) - 1

_SCHEMA_TYPES = {"avro": "AVRO", "debezium_avro": "AVRO", "json_schema": "JSON"}


class WireFormat:
    """Decodes a batch of records, with the schemas that the registry has."""

    def __init__(
        self,
        records: DataFrame,
        body: Column,
        tombstone: Column,
        settings: FormatSettings,
        known_schemas: dict[int, RegisteredSchema],
        check_json: Callable[[T.StructType], object],
    ) -> None:
        self.json_types: dict[int, T.StructType] = {}
        self._records, self._check_json = records, check_json
        self._body, self._tombstone, self._settings = body, tombstone, settings
        self._spark = records.sparkSession
        if _SCHEMA_TYPES[settings.format] == "AVRO":
            require_avro(self._spark)
        registry = SchemaRegistry(settings.schema_registry_url, settings.schema_registry_auth, known_schemas)
        self._schema_id = F.when(self._has_header(), F.conv(F.hex(F.substring(body, 2, 4)), 16, 10).cast("bigint"))
        ids = records.select(self._schema_id.alias("id")).where(F.col("id").isNotNull()).distinct().collect()
        self._schemas = {int(row["id"]): registry.schema(int(row["id"])) for row in ids}

    def decode(self) -> Column:
        """Return the decode result of every record, and fill in `json_types`.

        They are the Spark schemas of the JSON Schemas of the batch that describe an object, by schema ID.
        """
        head = F.concat(F.lit("0x"), F.hex(F.substring(self._body, 1, HEADER_BYTES)))
        problem = F.concat(F.lit("does not start with a zero byte and a four-byte schema ID, but with "), head)
        result = F.when(~self._has_header(), self._decode_without_header(decode_result(problem=problem)))
        for schema_id, schema in sorted(self._schemas.items()):
            text = "" if schema is None else schema.text
            decode = partial(self._decode_by_schema, schema_id, schema)
            understood = decode_by_schema(self._records, f"schema {schema_id}", text, decode)
            result = result.when(self._schema_id == schema_id, understood)
        return result

    @property
    def schema_id(self) -> Column:
        """The ID of a record's schema; null for a record without the header."""
        return self._schema_id

    def _has_header(self) -> Column:
        return (F.octet_length(self._body) >= HEADER_BYTES) & (F.substring(self._body, 1, 1) == F.lit(b"\0"))

    def _decode_without_header(self, problem: Column) -> Column:
        # Keys are often plain texts or numbers, whatever the format of the values.
        text = self._body.cast("string")
        deleted = delete_by_key(F.when(F.is_valid_utf8(text), text), self._settings)
        return F.when(self._tombstone, deleted).otherwise(problem)

    def _decode_by_schema(self, schema_id: int, schema: RegisteredSchema | None) -> Column:
        expected = _SCHEMA_TYPES[self._settings.format]
        if schema is None:
            return decode_result(problem=F.lit(f"the schema registry has no schema {schema_id}"))
        if schema.kind != expected:
            return decode_result(problem=F.lit(f"schema {schema_id} is {schema.kind}, not {expected}"))
        data = F.substring(self._body, HEADER_BYTES + 1, _MAX_BYTES)
        if expected == "JSON":
            return self._decode_json(schema_id, schema, data)
        avro = AvroSchema(self._spark, schema)
        return evaluate_once(avro.read(data), lambda row: self._decode_avro(schema_id, row, avro.logical_type))

    def _decode_avro(self, schema_id: int, row: Column, logical_type: LogicalType) -> Column:
        unreadable = decode_result(problem=F.lit(f"the bytes do not fit schema {schema_id}"))
        if not logical_type.fields:
            single = delete_by_single_key(row, logical_type, self._settings)
            other = decode_result(problem=F.lit(f"schema {schema_id} does not describe a record"))
            result = F.when(self._tombstone, single).otherwise(other)
            return F.when(row.isNull(), unreadable).otherwise(result)
        result = decode_result(
            F.to_json(to_payload(row, logical_type), PAYLOAD_OPTIONS),
            column_type(logical_type).json(),
            F.when(self._tombstone, F.lit("delete")),
        )
        if self._settings.format == "debezium_avro":
            event = debezium.decode_envelope(row, logical_type)
            if event is None:
                event = decode_result(problem=F.lit(f"schema {schema_id} does not describe a change event"))
            result = F.when(self._tombstone, result).otherwise(event)
        return F.when(row.isNull(), unreadable).otherwise(result)

    def _decode_json(self, schema_id: int, schema: RegisteredSchema, data: Column) -> Column:
        kind = json_schemas.spark_struct(schema)
        text = data.cast("string")
        if kind is None:
            other = decode_result(problem=F.lit(f"schema {schema_id} does not describe an object"))
            return F.when(self._tombstone, delete_by_key(text, self._settings, is_json=True)).otherwise(other)
        self._check_json(kind)
        self.json_types[schema_id] = kind
        problem = F.when(~F.is_valid_utf8(text), F.lit("the value is not valid UTF-8"))
        return decode_result(text, kind.json(), F.when(self._tombstone, F.lit("delete")), problem)
