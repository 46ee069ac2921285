"""What records bring: the schemas of their writers, and the one that their JSON values suggest."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import cast

from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.columns import fields_within, is_reserved
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.formats.decode_results import (
    IS_DELETE,
    JSON_READ_OPTIONS,
    SECRET,
    is_whole_object,
    parse_object,
    wrap_object,
    wrapped_record,
)
from icecdc_core.ingest.readers import FLOATS, Path, StructReader, struct_reader
from icecdc_core.session.jvm import active_session, java_class

_NO_NAME = f"{SECRET}."
# A name with its quotes, before a colon; looked ahead, so that no match begins in another. A group that repeats without
# a limit would make Java recurse.
_NAMES = r'(?=("[^"\\]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*+){0,50}")\s*:)'
_MAX_FLOAT = 3.4028234663852886e38
_PROMOTED: dict[type[T.DataType], T.DataType] = {T.IntegerType: T.LongType(), T.FloatType: T.DoubleType()}


@dataclass(frozen=True)
class Seen:
    guessed: T.StructType = field(default_factory=T.StructType)
    written: list[T.StructType] = field(default_factory=list)
    # The columns that a value in plain JSON does not fit, with the type that it fits.
    widened: dict[Path, T.DataType] = field(default_factory=dict)


def infer_schema(decoded: DataFrame, settings: IngestConfig) -> T.StructType:
    """Return the schema of all payloads: the writers' schemas, and Spark's inference for plain JSON."""
    plain, written = _plain_and_written(decoded, settings)
    plain = plain.where(is_whole_object(parse_object(F.col("payload"), T.StructType())))
    # One without fields does not count: it would make all optional.
    schemas: list[T.DataType] = [schema for schema in (_guess(plain), *written) if schema.fields]
    return cast(T.StructType, reduce(merge_types, schemas)) if schemas else T.StructType()


def look_at(
    decoded: DataFrame,
    current: T.StructType,
    settings: IngestConfig,
    spellings: Mapping[str, Path] | None = None,
    widen: bool = True,
) -> Seen:
    """Return what the records bring that could be stored; others must not hide what these need."""
    plain, written = _plain_and_written(decoded, settings)
    reader = struct_reader(cast(T.StructType, _lenient(current)), F.col("payload"), spellings, settings=settings)
    parsed = parse_object(F.col("payload"), reader.json_type)
    plain = plain.where(is_whole_object(parsed))
    tests = list(_widening_tests(reader, wrapped_record(parsed))) if widen else []
    found = plain.agg(*(F.max(is_wider) for _, _, is_wider in tests)).first() if tests else None
    widened = {path: kind for (path, kind, _), is_wider in zip(tests, found or (), strict=True) if is_wider}
    guessed = _guess(plain)
    # A JSON Schema says nothing of further fields.
    if settings.format == "json_schema" and (settings.unknown_fields == "reject" or settings.evolve_schema):
        declared = {each.name for schema in written for each in schema}
        others = _guess(decoded.where("problem IS NULL AND NOT op <=> 'delete'"))
        guessed = T.StructType([each for each in others if each.name not in declared])
    return Seen(guessed, written, widened)


def find_spellings(texts: DataFrame, schema: T.StructType) -> dict[str, Path]:
    """Return the names in JSON texts, in `payload`, that are a field's in any case, by their lower-case form."""
    wanted = {path[-1].lower() for path, _ in fields_within(schema)}
    name = F.col("name")
    found = texts.select(F.explode(F.regexp_extract_all("payload", F.lit(_NAMES), F.lit(1))).alias("name"))
    found = found.where(F.lower(name).isin([f'"{each}"' for each in wanted]) | F.contains(name, F.lit("\\")))
    spellings: dict[str, Path] = {}
    for each in sorted({json.loads(row.name, strict=False) for row in found.distinct().collect()}):
        if each.lower() in wanted:
            spellings[each.lower()] = (*spellings.get(each.lower(), ()), each)
    return spellings


def _plain_and_written(decoded: DataFrame, settings: IngestConfig) -> tuple[DataFrame, list[T.StructType]]:
    """The records in plain JSON, and the schemas of the writers of all others."""
    # A delete needs no columns but those that the table has.
    decoded = decoded.where(F.col("problem").isNull() & ~F.expr(IS_DELETE))
    if settings.format in ("json", "dms") and not settings.select:
        return decoded, []
    kinds = decoded.select("payload_type").where("payload_type IS NOT NULL").distinct().collect()
    written = [T.StructType.fromJson(json.loads(kind)) for (kind,) in sorted(kinds)]
    return decoded.where(F.col("payload_type").isNull()), written


def _guess(plain: DataFrame) -> T.StructType:
    payload = F.col("payload")
    # For Spark's inference an empty text is null, and a field without a name is none.
    named = F.regexp_replace(payload, r'(?<!\\)""(?=\s*:)', f'"{_NO_NAME}"')
    filled = F.regexp_replace(named, r'""(?!\s*:)', '"?"')
    text = F.when(F.contains(payload, F.lit('""')), filled).otherwise(payload)
    spark, texts = plain.sparkSession, plain.select(wrap_object(text).alias("value"))
    reader = spark.read.options(**{**JSON_READ_OPTIONS, "mode": "DROPMALFORMED", "dropFieldIfAllNull": "true"})
    # PySpark offers this reader only for RDDs of Python texts.
    encoder = java_class(spark, "org.apache.spark.sql.Encoders").STRING()
    with active_session(spark):  # it says whether names differ by case
        found = reader._jreader.json(getattr(texts._jdf, "as")(encoder)).schema().json()
    wrapped = T.StructType.fromJson(json.loads(found))
    if not wrapped.fields:
        return wrapped
    elements = cast(T.ArrayType, wrapped[SECRET].dataType).elementType
    return T.StructType([each for each in cast(T.StructType, _by_our_rules(elements)) if each.name != SECRET])


def _by_our_rules(kind: T.DataType) -> T.DataType:
    """A type of Spark's inference with names as they are, and whole numbers of any length."""
    if isinstance(kind, T.StructType):
        # Of names that differ only in case, the first becomes a column: the one in lower case.
        fields: dict[str, T.DataType] = {}
        for each in sorted(kind.fields, key=lambda each: each.name.swapcase()):
            # Spark has a field for each time that a record repeats a name.
            name = each.name.replace(_NO_NAME, "")
            fields[name] = merge_types(fields.get(name, T.NullType()), _by_our_rules(each.dataType))
        return T.StructType([T.StructField(name, inner) for name, inner in fields.items()])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_by_our_rules(kind.elementType))
    return T.DecimalType(38, 0) if isinstance(kind, T.DecimalType) else kind


def _lenient(kind: T.DataType) -> T.DataType:
    """The type that reads what a column can store, perhaps after a promotion. What can hide nothing is a string."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(each.name, _lenient(each.dataType)) for each in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_lenient(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _lenient(kind.valueType))
    return _PROMOTED.get(type(kind), T.StringType())


def _widening_tests(
    reader: StructReader, parsed: Column, parent: Path = ()
) -> Iterator[tuple[Path, T.DataType, Column]]:
    """The columns of a `_lenient` type that can be widened, that type, and whether a value does not fit the column."""
    for each in reader.fields:
        path, value, kind = (*parent, each.column.name), each.parsed(parsed), each.column.dataType
        if isinstance(each.reader, StructReader):
            yield from _widening_tests(each.reader, value, path)
            continue
        value = value if each.reader is None else each.reader.value(value)
        if isinstance(kind, T.LongType):
            yield path, kind, ~value.between(-(2**31), 2**31 - 1)
        elif isinstance(kind, T.DoubleType):
            yield path, kind, (F.abs(value) > _MAX_FLOAT) & (F.abs(value) < float("inf"))


def merge_types(left: T.DataType, right: T.DataType) -> T.DataType:
    """Return the narrowest type that holds the values of both; a string if there is no other."""
    if left == right or isinstance(right, T.NullType):
        return left
    if isinstance(left, T.NullType):
        return right
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        others, fields = {each.name: each for each in right.fields}, []
        for each in left.fields:
            other = others.pop(each.name, T.StructField(each.name, T.NullType()))
            kind, nullable = merge_types(each.dataType, other.dataType), each.nullable or other.nullable
            fields.append(T.StructField(each.name, kind, nullable))
        return T.StructType(fields + [T.StructField(each.name, each.dataType) for each in others.values()])
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        nulls = left.containsNull or right.containsNull
        return T.ArrayType(merge_types(left.elementType, right.elementType), nulls)
    if isinstance(left, T.MapType) and isinstance(right, T.MapType):
        nulls = left.valueContainsNull or right.valueContainsNull
        return T.MapType(merge_types(left.keyType, right.keyType), merge_types(left.valueType, right.valueType), nulls)
    if not (isinstance(left, T.NumericType) and isinstance(right, T.NumericType)):
        return T.StringType()
    if isinstance(left, FLOATS) or isinstance(right, FLOATS):
        return T.DoubleType()
    if isinstance(left, T.IntegralType) and isinstance(right, T.IntegralType):
        return T.LongType()
    decimals = [
        kind if isinstance(kind, T.DecimalType) else T.DecimalType(19 if isinstance(kind, T.LongType) else 10, 0)
        for kind in (left, right)
    ]
    scale = max(kind.scale for kind in decimals)
    digits = max(kind.precision - kind.scale for kind in decimals) + scale
    return T.DecimalType(digits, scale) if digits <= 38 else T.StringType()


def promote_type(current: T.DataType, seen: T.DataType) -> T.DataType | None:
    """Return the type to which Iceberg can promote a column for values of another; None if there is none."""
    if seen == _PROMOTED.get(type(current)):
        return seen
    if isinstance(current, T.DecimalType) and isinstance(seen, T.DecimalType):
        digits = seen.precision - seen.scale + current.scale
        if seen.scale <= current.scale and current.precision < digits <= 38:
            return T.DecimalType(digits, current.scale)
    return None


_METADATA_COLUMNS = ["_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"]


class ColumnNames:
    """The names that the fields of a table have, nested ones included, and those that new fields get."""

    def __init__(self, schema: T.StructType, others: Iterable[str] = (), lower: bool = False) -> None:
        self._names = {fold_case(name) for name in (*others, *(".".join(path) for path, _ in fields_within(schema)))}
        self._lower = lower

    def new_struct(self, kind: T.StructType, path: Path = ()) -> T.StructType:
        columns = [self.new_column(field.name, field.dataType, path) for field in kind.fields]
        return T.StructType([column for column in columns if column])

    def new_column(self, name: str, kind: T.DataType, parent: Path) -> T.StructField | None:
        """Return the column of a new field, without inner fields that cannot be columns; None if itself it cannot."""
        name = name.lower() if self._lower else name
        path, folded = (*parent, name), fold_case(name)
        dotted, reserved = fold_case(".".join(path)), folded in _METADATA_COLUMNS or is_reserved(folded)
        # A field of the type null, as Avro has it, never has a value.
        if isinstance(kind, T.NullType) or not name or (reserved and not parent) or dotted in self._names:
            return None
        self._names.add(dotted)
        if isinstance(kind, T.StructType):
            struct = self.new_struct(kind, path)
            return T.StructField(name, struct) if struct.fields else None
        if isinstance(kind, T.ArrayType):
            element = self.new_column("element", kind.elementType, path)
            return T.StructField(name, T.ArrayType(element.dataType)) if element else None
        if isinstance(kind, T.MapType):
            value = self.new_column("value", kind.valueType, path)
            return T.StructField(name, T.MapType(kind.keyType, value.dataType)) if value else None
        return T.StructField(name, kind)


def unknown_fields(columns: T.DataType, seen: T.DataType, any_case: bool, path: Path = ()) -> Iterator[Path]:
    """Yield the fields that have no column, each with the names of the columns around it."""
    if isinstance(columns, T.StructType) and isinstance(seen, T.StructType):
        known = {field.name.lower() if any_case else field.name: field for field in columns.fields}
        for field in seen.fields:
            column = known.get(field.name.lower() if any_case else field.name)
            if column is None:
                yield (*path, field.name)
            else:
                yield from unknown_fields(column.dataType, field.dataType, any_case, (*path, column.name))
    elif isinstance(columns, T.ArrayType) and isinstance(seen, T.ArrayType):
        yield from unknown_fields(columns.elementType, seen.elementType, any_case, (*path, "element"))
    elif isinstance(columns, T.MapType) and isinstance(seen, (T.MapType, T.StructType)):
        # Spark guesses a map to be a struct.
        values = [seen.valueType] if isinstance(seen, T.MapType) else [each.dataType for each in seen.fields]
        for value in values:
            yield from unknown_fields(columns.valueType, value, any_case, (*path, "value"))


def fold_case(name: str) -> str:
    """Return a name in the form in which Java compares names in any case, character by character."""
    return "".join(lower if len(lower := each.upper().lower()) == 1 else each.lower() for each in name)
