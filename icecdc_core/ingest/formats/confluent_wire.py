"""Records with a schema registry's wire format: a zero, the number of the writer's schema in four bytes, the data."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats import debezium, json_schemas
from icecdc_core.ingest.formats.avro import AvroSchema, require_avro
from icecdc_core.ingest.formats.decode_results import bound, outcome
from icecdc_core.ingest.formats.json_text import PAYLOAD_OPTIONS
from icecdc_core.ingest.formats.logical_types import LogicalType, rendered, wanted
from icecdc_core.ingest.formats.record_keys import deleted_by, deleted_by_value
from icecdc_core.ingest.formats.registry import RegisteredSchema, SchemaRegistry
from icecdc_core.ingest.formats.settings import FormatSettings

HEADER_BYTES = 5
_ALL = (1 << 31) - 1

_KINDS = {"avro": "AVRO", "debezium_avro": "AVRO", "json_schema": "JSON"}


class WireFormat:
    """The decoding of a batch, whose schemas are asked for when it is made.

    Args:
        records: The records, with ``body`` and ``tombstone``. Looked at once, for the numbers of the schemas.
        body: The bytes of the value, or of the key where there is no value.
        tombstone: Whether it is the key.
        settings: The format, and where the registry is.

    Raises:
        SchemaRegistryError: The registry does not answer, or refuses to.
        ConfigError: There is no URL of a registry.
        DependencyError: The session has no Avro reader.
    """

    def __init__(self, records: DataFrame, body: Column, tombstone: Column, settings: FormatSettings) -> None:
        self._body, self._tombstone, self._settings = body, tombstone, settings
        self._spark = records.sparkSession
        if _KINDS[settings.format] == "AVRO":
            require_avro(self._spark)
        registry = SchemaRegistry(settings.schema_registry_url, settings.schema_registry_auth)
        self._number = F.when(self._framed(), F.conv(F.hex(F.substring(body, 2, 4)), 16, 10).cast("bigint"))
        found = records.select(self._number.alias("n")).where(F.col("n").isNotNull()).distinct().collect()
        self._schemas = {int(row["n"]): registry.schema(int(row["n"])) for row in found}

    def outcome(self) -> Column:
        """Return what becomes of every record."""
        head = F.concat(F.lit("0x"), F.hex(F.substring(self._body, 1, HEADER_BYTES)))
        wrong = F.concat(F.lit("does not begin with a zero and a schema's number, but with "), head)
        result = F.when(~self._framed(), self._unframed(outcome(problem=wrong)))
        for number, schema in sorted(self._schemas.items()):
            result = result.when(self._number == number, self._decoded(number, schema))
        return result

    def json_types(self) -> dict[int, T.StructType]:
        """Return what the JSON schemas of the batch say, for those that are of objects."""
        kinds = {number: self._json_type(schema) for number, schema in self._schemas.items()}
        return {number: kind for number, kind in kinds.items() if kind is not None}

    @property
    def number(self) -> Column:
        """The number of a record's schema; null where there is none."""
        return self._number

    def _framed(self) -> Column:
        return (F.octet_length(self._body) >= HEADER_BYTES) & (F.substring(self._body, 1, 1) == F.lit(b"\0"))

    def _unframed(self, problem: Column) -> Column:
        # Keys are often plain texts or numbers, whatever the values are.
        text = self._body.cast("string")
        deleted = deleted_by(F.when(F.is_valid_utf8(text), text), self._settings)
        return F.when(self._tombstone, deleted).otherwise(problem)

    def _decoded(self, number: int, schema: RegisteredSchema | None) -> Column:
        wanted_kind = _KINDS[self._settings.format]
        if schema is None:
            return outcome(problem=F.lit(f"the schema registry knows no schema {number}"))
        if schema.kind != wanted_kind:
            return outcome(problem=F.lit(f"schema {number} is {schema.kind}, not {wanted_kind}"))
        data = F.substring(self._body, HEADER_BYTES + 1, _ALL)
        if wanted_kind == "JSON":
            return self._json(number, schema, data)
        try:
            avro = AvroSchema(self._spark, schema)
        except (PySparkException, ValueError, KeyError) as error:
            return outcome(problem=F.lit(f"schema {number} cannot be read by Spark: {_first_line(error)}"))
        return bound(avro.read(data), lambda row: self._avro(number, row, avro.meaning))

    def _avro(self, number: int, row: Column, meaning: LogicalType) -> Column:
        unread = outcome(problem=F.lit(f"the bytes do not fit schema {number}"))
        fields = meaning.fields
        if not fields:
            single = outcome(problem=F.lit(f"schema {number} is not of a record"))
            single = F.when(self._tombstone, deleted_by_value(row, meaning, self._settings)).otherwise(single)
            return F.when(row.isNull(), unread).otherwise(single)
        whole = outcome(
            F.to_json(rendered(row, meaning), PAYLOAD_OPTIONS),
            wanted(meaning).json(),
            F.when(self._tombstone, F.lit("delete")),
        )
        if self._settings.format == "debezium_avro":
            other = outcome(problem=F.lit(f"schema {number} is not of a change event"))
            if {"before", "after", "op"} <= set(fields):
                before, after = (
                    F.to_json(rendered(row[name], fields[name]), PAYLOAD_OPTIONS) for name in ("before", "after")
                )
                other = debezium.event(row["op"], before, after, wanted(fields["after"]).json())
            whole = F.when(self._tombstone, whole).otherwise(other)
        return F.when(row.isNull(), unread).otherwise(whole)

    def _json(self, number: int, schema: RegisteredSchema, data: Column) -> Column:
        kind = self._json_type(schema)
        text = data.cast("string")
        if kind is None:
            other = outcome(problem=F.lit(f"schema {number} is not of an object"))
            return F.when(self._tombstone, deleted_by(text, self._settings, is_json=True)).otherwise(other)
        problem = F.when(~F.is_valid_utf8(text), F.lit("the value is not valid UTF-8"))
        return outcome(text, kind.json(), F.when(self._tombstone, F.lit("delete")), problem)

    def _json_type(self, schema: RegisteredSchema | None) -> T.StructType | None:
        if schema is None or schema.kind != "JSON":
            return None
        return json_schemas.struct_of(schema)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]
