"""SQL over whole records: `where`, `route`, `operation`, `select`, and what names in them mean (docs/kafka.md)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from icecdc_core.columns import JSON_OPTIONS, OWN_PREFIX, quoted
from icecdc_core.errors import ConfigError
from icecdc_core.ingest.config import CHANGE_EVENTS, IngestConfig
from icecdc_core.ingest.decoding import ROUTE, with_operation
from icecdc_core.ingest.formats.change_events import UNAVAILABLE, is_unavailable
from icecdc_core.ingest.formats.decode_results import (
    ENVELOPE,
    JSON_READ_OPTIONS,
    LONG_NUMBER,
    PARTIAL,
    has_long_number,
    is_whole_object,
    parse_object,
    unreadable_reason,
    variant_text,
    wrapped_record,
)
from icecdc_core.session.jvm import failure_message, java_class
from icecdc_core.session.spark import RowCount, settings_unless_set
from icecdc_core.table.select import example_rows, find_instability, find_selections

_GIVEN, _ROW, _ENVELOPE, _RESULT = (f"{OWN_PREFIX}{name}" for name in ("given_", "fields", "envelope", "result"))
_DECODED = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary, headers "
    f"array<struct<key:string,value:binary>>, payload string, problem string, {ENVELOPE} string"
)
_KAFKA = ("topic", "partition", "offset", "timestamp", "key", "headers")
_DEBEZIUM = ("op", "ts_ms", "ts_us", "ts_ns", "source", "transaction", "before", "after")
_ENVELOPES = {"debezium_json": _DEBEZIUM, "debezium_avro": _DEBEZIUM, "dms": ("metadata", "data", "before-image")}
# SQL has them as functions without parentheses, which a field of that name must not hide.
_CLOCKS = ("current_date", "current_time", "current_timestamp", "localtimestamp")
_SINGLE = {"where": ("boolean",), "route": ("string", "array<string>"), "operation": ("string",)}
"""The parameters that have one expression, with the types that it may have."""
_FAILS = "fails for this record (try_cast and other try_ functions give null instead of an error)"

Path = tuple[str, ...]


@dataclass
class Expression:
    """One SQL text; with the name of the field that it makes, and its path if it is only a JSON value of the record."""

    parameter: str
    text: str
    name: str = ""
    path: Path | None = None

    @property
    def attempt(self) -> Column:
        return F.col(_RESULT)[f"{self.parameter}.{self.name}"]

    @property
    def failure(self) -> Column:
        return F.when(self.attempt.isNull(), F.lit(f"{self.parameter}: {self.text[:200]} {_FAILS}"))

    def refused(self, problem: str, remedy: str = "") -> ConfigError:
        remedy = remedy or "give an expression over one record, without subqueries, aggregates, random functions or "
        remedy += "" if remedy else "the current time"
        return ConfigError(f"{self.parameter} {problem}", subject=self.parameter, value=self.text, remedy=remedy)

    def check(self, rows: DataFrame, constants: DataFrame) -> None:
        """Raises ConfigError if Spark refuses it, or if it is not the same in every run, or has another type."""

        def function(frame: DataFrame) -> DataFrame:
            return frame.select(F.expr(self.text))

        try:
            made = function(rows)
            find_selections(made, rows)
            problem = find_instability(made, constants, function)
        except (PySparkException, Py4JError) as error:
            raise self.refused(f"is no expression over a record: {failure_message(str(error))}") from error
        except ValueError as error:
            raise self.refused(f"does not make one value of each record (Spark plans {error})") from None
        if problem:
            raise self.refused(problem)
        kind, wanted = made.schema[0].dataType.simpleString(), _SINGLE.get(self.parameter, ())
        if kind not in wanted if wanted else re.search("void|interval", kind):
            raise self.refused(f"is of type {kind}", f"CAST it to {' or '.join(wanted) or 'another type'}")

    def evaluated(self, spark: SparkSession) -> Column:
        """The value in a struct, which is null if the expression fails: a null is no failure."""
        utils = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
        attempt = java_class(spark, "org.apache.spark.sql.catalyst.expressions.TryEval")
        value: Any = F.struct(F.expr(self.text).alias("value"))
        return Column(utils.column(attempt(utils.expression(value._jc)))).alias(f"{self.parameter}.{self.name}")


Fields = dict[Path, bool]
"""The fields of a JSON object that expressions use: by path, whether as a value with its type, or only as text."""


def _shape(fields: Fields) -> T.StructType:
    inner: dict[str, Fields] = {}
    for path, is_value in fields.items():
        if path:
            inner.setdefault(path[0], {})[path[1:]] = is_value
    kinds = {True: T.VariantType(), False: T.StringType()}
    return T.StructType([T.StructField(n, kinds[of[()]] if () in of else _shape(of)) for n, of in inner.items()])


def _texts(parsed: Column, shape: T.StructType) -> dict[str, Column]:
    def text(value: Column, kind: T.DataType) -> Column:
        if isinstance(kind, T.StructType):
            return F.when(value.isNotNull(), F.struct(*(each.alias(n) for n, each in _texts(value, kind).items())))
        return variant_text(value) if isinstance(kind, T.VariantType) else value

    return {each.name: text(parsed[each.name], each.dataType) for each in shape}


def _class_of(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _path(node: Any) -> Path | None:
    """The names of `a.b` or `a['b']`; None for any other expression."""
    kind = _class_of(node)
    if kind in ("UnresolvedAttribute", "UnresolvedNamedLambdaVariable"):
        return tuple(map(str, _listed(node.nameParts())))
    if kind == "UnresolvedExtractValue":
        of, key = _listed(node.children())
        if (path := _path(of)) is not None and _class_of(key) == "Literal" and key.dataType().typeName() == "string":
            return (*path, str(key.value()))
    return None


def _paths(node: Any, bound: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Yield what an expression uses; `bound` are the names of the lambda functions around it."""
    if (path := _path(node)) is not None:
        if path[0] not in bound:
            yield path
        return
    if _class_of(node).startswith("UnresolvedStar"):
        raise ValueError("* stands within it")
    children = _listed(node.children())
    if _class_of(node) == "LambdaFunction":
        bound |= {path[0] for path in map(_path, children[1:]) if path}
    for each in children:
        yield from _paths(each, bound)


class Expressions:
    """The expressions of an ingest, parsed by Spark; raises ConfigError for one that it cannot parse."""

    def __init__(self, spark: SparkSession, config: IngestConfig) -> None:
        self.format, self.row, self.envelope = config.format, Fields(), Fields()
        self.single = {name: Expression(name, text) for name in _SINGLE if (text := getattr(config, name))}
        self.star: list[str] | None = None  # the fields that `*` leaves out
        self.drops_by_row = False  # whether `where` looks at the row
        self.items: list[Expression] = []
        parser: Any = spark._jsparkSession.sessionState().sqlParser()
        for each in (*self.single.values(), *(Expression("select", text) for text in config.select)):
            try:
                self._add(each, parser.parseExpression(each.text))
            except (PySparkException, Py4JError, ValueError) as error:
                raise each.refused(f"is no SQL expression: {failure_message(str(error))}") from error

    def _add(self, given: Expression, node: Any) -> None:
        is_field, kind = given.parameter == "select", _class_of(node)
        if is_field and kind.startswith("UnresolvedStar") and node.target().isEmpty() and self.star is None:
            self.star = [str(each.mkString(".")) for each in _listed(node.excepts())] if "Except" in kind else []
            return
        if is_field:
            path = _path(node.child() if kind == "Alias" else node)
            if path is None and kind != "Alias":
                raise given.refused("has an expression without a name", "write expression AS name")
            given.name = str(node.name()) if kind == "Alias" else (path or ("",))[-1]
            if given.name in (each.name for each in self.items):
                raise given.refused(f"makes the field {given.name} twice", "leave one of them out")
            given.path = path if path and self._place(path) else None
            self.items.append(given)
        for path in _paths(node):
            if (place := self._place(path)) is None:
                continue
            fields, inner = place
            self.drops_by_row |= given.parameter == "where" and fields is self.row
            near = [each for each in fields if each and inner and each != inner and each[0] == inner[0]]
            if any(each[: len(inner)] == inner or inner[: len(each)] == each for each in near):
                remedy = "use get_json_object(field, '$.inner') for what is in it"
                raise given.refused(f"uses {'.'.join(inner)} both as a whole and by a field in it", remedy)
            fields[inner] = fields.get(inner, False) or path == given.path

    @property
    def makes_all(self) -> bool:
        """Whether `select` makes the whole row, which then says no longer that the record was not one object."""
        return bool(self.star or (self.items and self.star is None))

    @property
    def envelope_fields(self) -> set[str]:
        return {path[0] for path in self.envelope}

    def _place(self, path: Path) -> tuple[Fields, Path] | None:
        """Whether a path leads into the row or the envelope, and to what there; None for Kafka's own."""
        first, *inner = path
        if first in _KAFKA or (not inner and first.lower() in _CLOCKS):
            return None
        if first == "value":
            return self.row, tuple(inner)
        return (self.envelope if first in _ENVELOPES.get(self.format, ()) else self.row), path

    def _scoped(self, decoded: DataFrame, payload: str) -> tuple[DataFrame, list[str]]:
        """Rename the columns of decoded records, and add one for each name that expressions may use."""
        hidden = decoded.toDF(*(f"{_GIVEN}{name}" for name in decoded.columns))
        given = {name: F.col(f"{_GIVEN}{name}") for name in decoded.columns}
        is_usable = given["problem"].isNull()
        beside, text = _shape(self.envelope), given.get(ENVELOPE, given["value"].cast("string"))
        is_nested = self.format == "debezium_json"  # perhaps beside a `schema`
        whole = T.StructType([*beside, T.StructField("payload", beside)]) if is_nested else beside
        fields = _shape(self.row)
        parsed = {_ROW: parse_object(given[payload], fields)} if self.row or self.makes_all else {}
        parsed |= {_ENVELOPE: F.from_json(text, whole, JSON_READ_OPTIONS)} if beside else {}
        hidden = hidden.withColumns({name: _once(F.when(is_usable, each)) for name, each in parsed.items()})
        if beside and is_nested:
            outer = F.struct(*(F.col(_ENVELOPE)[name].alias(name) for name in beside.names))
            hidden = hidden.withColumn(_ENVELOPE, F.coalesce(F.col(_ENVELOPE)["payload"], outer))
        row = _texts(wrapped_record(F.col(_ROW)), fields)
        headers = given["headers"]
        names = {
            **{name: each for name, each in row.items() if name not in _CLOCKS},
            **_texts(F.col(_ENVELOPE), beside),
            "value": given[payload] if () in self.row or not row else F.struct(*(v.alias(k) for k, v in row.items())),
            **{name: given[name] for name in _KAFKA},
            "key": given["key"].cast("string"),
            "headers": F.map_from_arrays(headers["key"], headers["value"].cast("array<string>")),
        }
        return hidden.select(*hidden.columns, *(each.alias(name) for name, each in names.items())), [*names]

    def check(self, spark: SparkSession) -> None:
        """Raises ConfigError for an expression that Spark refuses, or that is not the same in every run."""
        with settings_unless_set(spark, {"spark.sql.caseSensitive": "true"}):
            scoped, names = self._scoped(spark.createDataFrame([], _DECODED), "payload")
            frames = example_rows(spark, scoped.select(*map(quoted, names)).schema)
            for each in (*self.single.values(), *(item for item in self.items if item.path is None)):
                each.check(*frames)

    def _evaluated(self, decoded: DataFrame, payload: str, expressions: Iterable[Expression]) -> DataFrame:
        """Add what the expressions make of a JSON object and its record; null for those that fail."""
        frame, _ = self._scoped(decoded, payload)
        spark, given = decoded.sparkSession, [F.col(f"{_GIVEN}{name}").alias(name) for name in decoded.columns]
        # Under a condition Spark computes each where it stands. Elsewhere it computes what two have in common first,
        # outside of their attempts.
        values = F.struct(*(each.evaluated(spark) for each in expressions))
        result = F.when(F.col(f"{_GIVEN}problem").isNull(), values)
        beside = [name for name in (_ROW, _ENVELOPE) if name in frame.columns]
        # Beside the renamed columns, Spark would take a name for one of these.
        return frame.withColumn(_RESULT, _once(result)).select(*given, *beside, _RESULT)

    def evaluate(self, decoded: DataFrame) -> tuple[DataFrame, RowCount | None]:
        """Apply all to decoded records; also returns the number of those that `where` drops."""
        columns, filtered, computed = decoded.columns, None, [each for each in self.items if each.path is None]
        decoded = self._evaluated(decoded, "payload", [*self.single.values(), *computed])
        unread = unreadable_reason(F.col("payload"), F.lit(None).cast("string"))
        problem, is_unread = F.col("problem"), F.col("payload").isNotNull() & ~is_whole_object(F.col(_ROW))
        if self.makes_all:
            problem = F.coalesce(problem, F.when(is_unread, unread))
        if _ROW in decoded.columns:
            is_lost = F.col("op").eqNullSafe(PARTIAL) & is_unavailable(F.to_json(F.col(_ROW)))
            problem = F.coalesce(problem, F.when(is_lost, F.lit(f"an expression uses a value that is {UNAVAILABLE}")))
        if where := self.single.get("where"):
            is_true = F.coalesce(where.attempt["value"], F.lit(False))
            problem = F.coalesce(problem, where.failure)
            if self.drops_by_row:  # of which all are null if the record is not one object
                problem = F.coalesce(problem, F.when(~is_true & is_unread, unread))
            decoded = decoded.withColumn("problem", problem)
            is_dropped = F.col("problem").isNull() & ~is_true
            filtered = RowCount(decoded, is_dropped)
            decoded, problem = filtered.rows.where(~is_dropped), F.col("problem")
        others = [each for name, each in self.single.items() if name != "where"]
        decoded = decoded.withColumn("problem", F.coalesce(problem, *(each.failure for each in (*others, *computed))))
        if operation := self.single.get("operation"):
            decoded = with_operation(decoded, operation.attempt["value"], "the operation (operation)")
        if route := self.single.get("route"):
            decoded = decoded.withColumn(ROUTE, route.attempt["value"])
            columns.append(ROUTE)
        if self.items or self.star is not None:
            decoded = self._select(decoded, "payload").select(*columns)
            if self.format in CHANGE_EVENTS:  # the row before an update has identifiers, too
                decoded = self._evaluated(decoded, "before", computed)
                failure = F.when(
                    F.col("before").isNotNull(), F.coalesce(*(each.failure for each in computed), F.lit(None))
                )
                decoded = self._select(decoded.withColumn("problem", F.coalesce("problem", failure)), "before")
        return decoded.select(*columns), filtered

    def _select(self, decoded: DataFrame, payload: str) -> DataFrame:
        """Make the fields of a row of what the items say."""

        def value(item: Expression) -> Column:
            if item.path is None:
                return item.attempt["value"]
            fields, path = self._place(item.path) or ({}, ())
            whole = wrapped_record(F.col(_ROW)) if fields is self.row else F.col(_ENVELOPE)
            return reduce(Column.getField, path, whole) if path else F.try_parse_json(F.col(payload))

        def json_of(options: dict[str, str]) -> Column:
            return F.to_json(F.struct(*(value(each).alias(each.name) for each in self.items)), options)

        given, is_delete, made = F.col(payload), F.col("op").eqNullSafe("delete"), json_of(JSON_OPTIONS)
        if self.star is not None:
            kept = F.map_filter(_fields(given), lambda name, _: ~name.isin(self.star))
            made = _joined(F.to_json(kept) if self.star else given, made) if self.items else F.to_json(kept)
        # What names the row, perhaps the record's key alone, names it as without `select`, which may say more.
        more = _fields(json_of({**JSON_OPTIONS, "ignoreNullFields": "true"}))
        made = F.when(is_delete, F.to_json(F.map_concat(_fields(given), more))).otherwise(made)
        changed = {payload: F.when(F.col("problem").isNull() & given.isNotNull(), made)}
        # Spark's type variant keeps no more digits.
        variants = [F.schema_of_variant(value(each)) for each in self.items if each.path]
        kinds = [F.when(is_delete | bool(self.star), F.lit("DOUBLE")), *variants]
        is_rounded = F.contains(F.concat_ws(",", *kinds), F.lit("DOUBLE")) & has_long_number(given)
        changed["problem"] = F.coalesce("problem", F.when(is_rounded, F.lit(LONG_NUMBER)))
        if payload == "payload":
            changed["payload_type"] = F.when(is_delete, F.col("payload_type")).otherwise(self._type(decoded.schema))
        return decoded.withColumns(changed)

    def _type(self, schema: T.StructType) -> Column:
        """The type of the selected row, if expressions alone say it; null if only values do."""
        kinds = {
            each.name: cast(T.StructType, each.dataType)["value"].dataType
            for each in cast(T.StructType, schema[_RESULT].dataType)
        }
        own = T.StructType(
            [T.StructField(each.name, kinds.get(f"select.{each.name}", T.VariantType())) for each in self.items]
        )
        if self.star or "variant" in own.simpleString():
            return F.lit(None)
        text, (start, end) = own.json(), ('{"fields":[', '],"type":"struct"}')
        if self.star is None or not self.items:
            return F.lit(text) if self.items else F.col("payload_type")
        more = text.removeprefix(start).removesuffix(end)
        given = F.left("payload_type", F.length("payload_type") - len(end))
        return F.concat(given, F.lit(f",{more}{end}"))


def used_expressions(spark: SparkSession, config: IngestConfig) -> Expressions | None:
    is_used = config.where or config.route or config.operation or config.select
    return Expressions(spark, config) if is_used else None


def _once(value: Column) -> Column:
    # Spark repeats a deterministic expression wherever its column is used, and pushes filters below it.
    return F.when(F.monotonically_increasing_id() >= 0, value)


def _fields(text: Column) -> Column:
    return F.from_json(text, "map<string,variant>", JSON_READ_OPTIONS)


def _joined(one: Column, other: Column) -> Column:
    """A JSON object with the fields of two, the second of which has some; what is no object stays none."""
    inner, spaces = F.substr(other, F.lit(2)), F.lit(" \t\r\n")

    def with_more(head: Column, separator: Column | str) -> Column:
        return F.concat(head, F.lit(separator), inner)

    # Trimming takes longer than parsing, and few records need it.
    needs_trim = reduce(or_, (one.endswith(f"{each}}}") for each in "{ \t\r\n"))
    text = F.rtrim(one, spaces)
    head = F.rtrim(F.left(text, F.length(text) - 1), spaces)
    trimmed = with_more(head, F.when(head.endswith("{"), F.lit("")).otherwise(F.lit(",")))
    joined = F.when(one.endswith("}") & ~needs_trim, with_more(F.left(one, F.length(one) - 1), ","))
    return F.coalesce(joined, F.when(text.endswith("}"), trimmed), one)
