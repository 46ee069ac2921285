"""Name and quote columns: the columns that a change row has beside the table's, and any column name, in Spark SQL."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.errors import ColumnNotFoundError, IdentifierColumnsError
from icecdc_core.quoting import quoted as quoted

CHANGE_TYPE = "_change_type"
"""What happened to the row: ``INSERT`` or ``DELETE`` (an update is a DELETE and an INSERT)."""

CHANGE_ORDINAL = "_change_ordinal"
"""The step in which it happened, from 0, oldest first."""

COMMIT_SNAPSHOT_ID = "_commit_snapshot_id"
"""The snapshot the step ends with."""

ROW_POSITION = "_row_position"
"""Where the row is in its data file; only in frames of tables without identifier columns."""

RESERVED = (ROW_POSITION, CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID)

OWN_PREFIX = "_icecdc_"
"""Helper columns beside those of the table begin with it, so no column of the table may."""

NUMBER, ROWS = f"{OWN_PREFIX}row", f"{OWN_PREFIX}rows"
"""The number of a narrow row, see ``remove_narrow_carryovers``, and how many of them were compared."""

KIND, DELETED, UPSERTED = f"{OWN_PREFIX}kind", 1, 2
"""What a step did to an identifier."""

IS_DUPLICATE = f"{OWN_PREFIX}duplicate"

WAS_THERE = f"{OWN_PREFIX}was_there"
"""Whether the table had a row of the identifier, and so the index its document, before the range; null: unknown."""

PLACE = f"{OWN_PREFIX}place"
"""Where a document is: the value of `routing`; with `index_column` the suffix of its index, `/`, then that value.

Only in frames of an index with one of them.
"""

OLD_PLACES = f"{OWN_PREFIX}old_places"
"""Where else the document of a row may be."""

_IDENTIFIER_PREFIX = f"{OWN_PREFIX}id_"

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How Spark writes values as JSON, in documents and wherever values are compared as JSON."""

TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
UNFIT_IDENTIFIERS: tuple[type[T.DataType], ...] = (T.FloatType, T.DoubleType, T.NullType, *NESTED)
"""Types whose equal values may have different texts, so that they make no document id."""

INSERT, DELETE = "INSERT", "DELETE"

IS_INSERT = f"{CHANGE_TYPE} = '{INSERT}'"
IS_DELETE = f"NOT ({IS_INSERT})"
"""SQL texts: what a change row is."""


def fields_within(data_type: T.DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], T.DataType]]:
    """Every field within a type by the names that lead to it: of an array `element`, of a map `key` and `value`."""
    inner: list[tuple[str, T.DataType]] = []
    if isinstance(data_type, T.StructType):
        inner = [(field.name, field.dataType) for field in data_type.fields]
    elif isinstance(data_type, T.ArrayType):
        inner = [("element", data_type.elementType)]
    elif isinstance(data_type, T.MapType):
        inner = [("key", data_type.keyType), ("value", data_type.valueType)]
    for name, each in inner:
        yield (*path, name), each
        yield from fields_within(each, (*path, name))


def types_within(data_type: T.DataType) -> list[T.DataType]:
    """A type, and every type within it."""
    return [data_type, *(each for _, each in fields_within(data_type))]


def contains_type(data_type: T.DataType, kinds: type[T.DataType] | tuple[type[T.DataType], ...]) -> bool:
    return any(isinstance(each, kinds) for each in types_within(data_type))


def convert_within(value: Column, data_type: T.DataType, convert: Callable[[Column, T.DataType], Column]) -> Column:
    """A struct, array or map whose fields, elements or values are converted; null stays null."""
    if isinstance(data_type, T.StructType):
        fields = [convert(value.getField(each.name), each.dataType).alias(each.name) for each in data_type.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(data_type, T.ArrayType):
        return F.transform(value, lambda each: convert(each, data_type.elementType))
    assert isinstance(data_type, T.MapType)
    return F.transform_values(value, lambda _, each: convert(each, data_type.valueType))


def is_insert() -> Column:
    return F.col(CHANGE_TYPE) == INSERT


def private_identifier(name: str) -> str:
    """Return the column in which an identifier column travels beside the fields of a projected document."""
    return f"{_IDENTIFIER_PREFIX}{name}"


def identifier_name(column: str) -> str:
    """Return the table's name of an identifier column, which may travel under a private name."""
    return column.removeprefix(_IDENTIFIER_PREFIX)


def is_document_column(name: str) -> bool:
    return name not in RESERVED and not name.startswith(OWN_PREFIX)


def is_reserved(name: str) -> bool:
    """Whether no column of a table may have the name, in any case: it would be taken for one of a change."""
    return not is_document_column(name.lower())


def with_times_as_texts(rows: DataFrame) -> DataFrame:
    """Return rows that Python can show: it has no dates before year 1 and after 9999, and times in its own zone."""
    times = (field.name for field in rows.schema if isinstance(field.dataType, TIMES))
    return rows.withColumns({name: F.col(quoted(name)).cast("string") for name in times})


def unused_name(name: str, columns: Sequence[str]) -> str:
    """Return ``name``, with underscores appended until no column has it, in upper or lower case."""
    taken = {column.lower() for column in columns}
    while name.lower() in taken:
        name += "_"
    return name


def require_change_columns(changes: DataFrame) -> None:
    missing = [name for name in (CHANGE_TYPE, CHANGE_ORDINAL) if name not in changes.columns]
    if missing:
        raise ColumnNotFoundError(
            f"This DataFrame has no change rows: {missing} is missing, it has {changes.columns}",
            subject="changes",
            value=missing,
            remedy="pass the frame that read_changes returns, its change columns included",
        )


def resolve_identifiers(changes: DataFrame, identifier_columns: Sequence[str]) -> list[str]:
    """Find the identifier columns of a frame as Spark would, by its setting in any case; an exact name comes first."""
    try:
        given = [] if isinstance(identifier_columns, str) else list(identifier_columns)
    except TypeError:
        given = []
    if not given or not all(isinstance(name, str) for name in given):
        raise _identifier_error("identifier columns are needed, as a list of column names", identifier_columns, changes)
    case_sensitive = str(changes.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
    folded = {} if case_sensitive else {name.lower(): name for name in reversed(changes.columns)}
    found = {name: name if name in changes.columns else folded.get(name.lower()) for name in given}
    names = [column for name in given if (column := found[name]) is not None]
    problems = {
        "are missing": [name for name, column in found.items() if column is None],
        "are given twice": [name for name, times in Counter(names).items() if times > 1],
        "must be the table's own": [name for name in names if name in RESERVED],
        "must hold single values, not nested ones": [
            name for name in names if isinstance(changes.schema[name].dataType, NESTED)
        ],
    }
    for problem, wrong in problems.items():
        if wrong:
            raise _identifier_error(f"identifier columns {problem}", wrong, changes)
    return names


def _identifier_error(message: str, value: object, changes: DataFrame) -> IdentifierColumnsError:
    own = [f"{f.name} {f.dataType.simpleString()}" for f in changes.schema if f.name not in RESERVED]
    return IdentifierColumnsError(
        f"{message}; the columns are {own}",
        subject="identifier_columns",
        value=value,
        remedy="name columns of the table that together identify a row",
    )


def json_string(text: Column) -> Column:
    """A text as a JSON string with quotes: `to_json` escapes it, then the object around it is removed."""
    json = F.to_json(F.struct(text.alias("t")))
    return F.substr(json, F.lit(6), F.length(json) - F.lit(6))
