"""Bulk actions from rows: the id, the document and the complete NDJSON of one operation, all built in the JVM.

An insert of the row `(id=7, price=1.50, seen=2026-01-31 12:00 UTC)` in epoch 3 becomes:

    {"index":{"_id":"7","version":7,"version_type":"external"}}
    {"id":7,"price":"1.50","seen":"2026-01-31T12:00:00.000000Z"}

and its delete becomes `{"delete":{"_id":"7","version":6,"version_type":"external"}}`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.columns import (
    JSON_OPTIONS,
    PLACE,
    ROW_POSITION,
    WAS_THERE,
    convert_within,
    identifier_name,
    is_document_column,
    is_insert,
    json_string,
    quoted,
    types_within,
    unused_name,
)
from icecdc_core.errors import NULL_MESSAGE
from icecdc_core.session.jvm import schema_of

_PLAIN_KEYS = (T.StringType, T.IntegralType, T.BooleanType, T.FloatType, T.DoubleType)


def needs_rebuild(data_type: T.DataType) -> bool:
    return any(
        isinstance(each, T.DecimalType) or (isinstance(each, T.MapType) and not isinstance(each.keyType, _PLAIN_KEYS))
        for each in types_within(data_type)
    )


def json_ready(column: Column, data_type: T.DataType) -> Column:
    """Return the value in types whose JSON is that of the document."""
    if not needs_rebuild(data_type):
        return column
    if isinstance(data_type, T.DecimalType):
        return scalar_text(column, data_type)
    rebuilt = convert_within(column, data_type, json_ready)
    if isinstance(data_type, T.MapType) and not isinstance(data_type.keyType, _PLAIN_KEYS):
        return F.transform_keys(rebuilt, lambda key, _: scalar_text(key, data_type.keyType))
    return rebuilt


def scalar_text(column: Column, data_type: T.DataType) -> Column:
    """Return the value as the string that a document has, in a session of jobs: in UTC, decimals in plain notation."""
    if isinstance(data_type, T.BinaryType):
        return F.replace(F.base64(column), F.lit("\r\n"))  # Spark breaks lines after 76 characters
    if isinstance(data_type, T.TimestampType):
        return F.date_format(column, JSON_OPTIONS["timestampFormat"])
    if isinstance(data_type, T.TimestampNTZType):
        return F.date_format(column, JSON_OPTIONS["timestampNTZFormat"])
    if isinstance(data_type, (T.StructType, T.ArrayType, T.MapType)):
        return F.to_json(json_ready(column, data_type), JSON_OPTIONS)
    return column if isinstance(data_type, T.StringType) else column.cast("string")


MAX_ID_BYTES = 512
"""The longest id that OpenSearch accepts."""
_MOST_BYTES = 41  # of a value that is no text: a decimal of 38 digits


def upsert_version(epoch: int) -> int:
    """Return the version that a batch gives to the documents it indexes: above that of its deletes."""
    return 2 * epoch + 1


def delete_version(epoch: int) -> int:
    """Return the version that a batch gives to the documents it deletes: above all versions of earlier batches."""
    return 2 * epoch


def to_actions(
    changes: DataFrame, identifier_columns: Sequence[str], epoch: int, physical_index: str = ""
) -> DataFrame:
    """Turn change rows into bulk operations; ``physical_index`` is given if the index of each has a suffix."""
    schema = schema_of(changes)
    # The id is used several times; a projection of its own computes it once.
    document_key = unused_name("_document_id", schema.names)
    identified = changes.withColumn(document_key, document_id(schema, identifier_columns))
    text = _target(F.col(document_key), schema.names, physical_index)
    upsert = _upsert(text, F.lit(str(upsert_version(epoch))), document_json(schema))
    delete = _head("delete", text, F.lit(str(delete_version(epoch))))
    was_there = [name for name in schema.names if name == WAS_THERE]
    return identified.select(F.when(is_insert(), upsert).otherwise(delete).alias("action"), *was_there)


def stored_actions(dead_letters: DataFrame, physical_index: str = "") -> DataFrame:
    """Turn dead letters into operations again, with the versions that they had."""
    version = F.col("version").cast("string")
    text = _target(F.col("document_id"), [PLACE], physical_index)
    upsert = _upsert(text, version, F.col("document"))
    return dead_letters.select(F.coalesce(upsert, _head("delete", text, version)).alias("action"))


def delete_actions(ids: DataFrame, epoch: int, physical_index: str = "") -> DataFrame:
    """Turn document ids, and their places if there are any, into delete operations."""
    action = _head("delete", _target(F.col("id"), ids.columns, physical_index), F.lit(str(delete_version(epoch))))
    return ids.select(action.alias("action"))


def document_json(schema: T.StructType) -> Column:
    """Return the row as JSON: all columns in order except the reserved ones, with nulls."""
    # Every operation on a Column takes several calls into the JVM, a name one: of 400 columns that is a second.
    columns = (
        json_ready(F.col(name), field.dataType).alias(field.name) if needs_rebuild(field.dataType) else name
        for field, name in ((field, quoted(field.name)) for field in schema.fields if is_document_column(field.name))
    )
    return F.to_json(F.struct(*columns), JSON_OPTIONS)


def document_id(schema: T.StructType, identifier_columns: Sequence[str]) -> Column:
    """Return the id of a row's document: its identifiers as strings, joined by `|`; without any its `_row_position`."""
    if not identifier_columns:
        return F.col(ROW_POSITION)
    texts = []
    for name in identifier_columns:
        text = scalar_text(F.col(quoted(name)), schema[name].dataType)
        if len(identifier_columns) > 1 and isinstance(schema[name].dataType, T.StringType):
            text = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit("|"), F.lit("\\|"))
        texts.append(F.coalesce(text, F.raise_error(F.lit(f"{NULL_MESSAGE} in column {identifier_name(name)}"))))
    joined = texts[0] if len(texts) == 1 else F.concat_ws("|", *texts)
    is_text = any(isinstance(schema[name].dataType, (T.StringType, T.BinaryType)) for name in identifier_columns)
    if not is_text and len(texts) * (_MOST_BYTES + 1) <= MAX_ID_BYTES:
        return joined
    size = F.octet_length(joined)
    # OpenSearch refuses these. One that looks like a digest could be the id of another row.
    unfit = (size > MAX_ID_BYTES) | (size == 0) | ~F.is_valid_utf8(joined)
    if len(texts) == 1:  # a `|` is in no digest
        unfit |= (size == 64) & joined.rlike("[0-9a-f]{64}")
    return F.when(unfit, F.sha2(joined, 256)).otherwise(joined)


def write_alias(physical: str) -> str:
    """Return the alias through which a physical index is written; it disappears with the index."""
    # No index may have capitals, so none is created by accident when the alias is gone.
    return f"{physical}--WRITE"


def index_with_suffix(physical: str, suffix: str) -> str:
    return f"{physical}-{suffix}"


def suffix_of(name: str) -> str:
    return name.rpartition("--")[2].partition("-")[2]


def suffix_of_place() -> Column:
    """The part of a place that `index_column` makes, see ``PLACE``."""
    return F.substring_index(PLACE, "/", 1)


def place_of(head: Mapping[str, Any], physical: str) -> str:
    """Return the place that the head of a bulk line names; empty without one."""
    routing = str(head.get("routing", ""))
    if "_index" not in head:
        return routing
    return f"{head['_index'].removeprefix(index_with_suffix(physical, '')).removesuffix(write_alias(''))}/{routing}"


def head_of(identity: str, place: str, physical: str, has_suffix: bool) -> dict[str, str]:
    """Return what a request says of a document, given its place: the other way round than ``place_of``."""
    suffix, routing = place.partition("/")[::2] if has_suffix else ("", place)
    name = index_with_suffix(physical, suffix) if suffix else physical
    return {"_index": name, "_id": identity, **({"routing": routing} if routing else {})}


def _target(document_id: Column, columns: Sequence[str], physical_index: str) -> Column:
    """The JSON of a bulk line's head that says which document it is about, after the key `_id`."""
    text = json_string(document_id)
    if PLACE not in columns:
        return text
    place, index = F.col(PLACE), F.lit("")
    if physical_index:
        suffix = suffix_of_place()
        name = F.concat(F.lit(index_with_suffix(physical_index, "")), suffix)
        name = F.when(suffix == "", physical_index).otherwise(name)  # somebody else wrote it
        index = F.concat(F.lit(',"_index":'), json_string(F.concat(name, F.lit(write_alias("")))))
        place = F.substr(place, F.instr(place, "/") + 1)
    routing = F.when(place == "", "").otherwise(F.concat(F.lit(',"routing":'), json_string(place)))
    return F.concat(text, index, routing)


def _upsert(text: Column, version: Column, document: Column) -> Column:
    return F.concat(_head("index", text, version), document, F.lit("\n"))


def _head(operation: str, text: Column, version: Column) -> Column:
    begin, end = F.lit(f'{{"{operation}":{{"_id":'), F.lit(',"version_type":"external"}}\n')
    return F.concat(begin, text, F.lit(',"version":'), version, end)
