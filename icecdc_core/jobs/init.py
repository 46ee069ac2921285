"""`icecdc init`: look at tables and write an index file for them; what a person should look at is a comment."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import UNFIT_IDENTIFIERS
from icecdc_core.config import SyncConfig
from icecdc_core.config.values import split_table_name
from icecdc_core.documents.mapping import check_supported
from icecdc_core.errors import (
    ConfigError,
    DuplicateIdentifierError,
    IcecdcError,
    IdentifierColumnsError,
    TableNotFoundError,
    UnsupportedTypeError,
)
from icecdc_core.quoting import quoted
from icecdc_core.reporting.card import Card
from icecdc_core.reporting.reports import Report
from icecdc_core.secrets import REDACTED, redact
from icecdc_core.session.job_session import with_job_session
from icecdc_core.table.catalogs import catalog_error
from icecdc_core.table.failures import spark_errors
from icecdc_core.table.schema import require_unique
from icecdc_core.table.source import Source, open_source

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from icecdc_core.config.sync import InitConfig

SAMPLE_ROWS = 20_000
_SCHEMA = Path(__file__).parents[1] / "config" / "indexes.schema.json"
_SHARED = (
    *("opensearch_url", "opensearch_username", "opensearch_password"),
    *("catalog_properties", "warehouse", "spark_conf"),
)
_NOT_IN_AN_INDEX = re.compile(r'[\\/*?"<>|\s,#:]+')
_NESTED = (T.StructType, T.ArrayType, T.MapType, T.VariantType)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_MOST_COLUMNS, _MOST_TOGETHER, _MOST_CHECKED = 12, 3, 5

_PERSONAL = re.compile(
    r"(^|_)(e?mail|phone|mobile|fax|ssn|iban|passport|birth(day|_?date)?|dob|(first|last|full|sur)_?name|street|address"
    r"|ip|tax_?id)(_|$)",
    re.IGNORECASE,
)
_MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[a-z]{2,}", re.IGNORECASE)
_LATITUDE, _LONGITUDE = re.compile(r"(^|.*_)(lat|latitude)$", re.IGNORECASE), ("lon", "lng", "long", "longitude")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")
_TIME_NAME = re.compile(r"(^|_)(ts|time|timestamp|at|date|epoch)(_(s|ms))?$", re.IGNORECASE)
_EPOCH = {"epoch_second": 1, "epoch_millis": 1000}  # from 2000 to 2100
_FIRST_SECOND, _LAST_SECOND = 946_684_800, 4_102_444_800
_LONGEST_KEYWORD, _MOST_CHOICES = 64, 50


@dataclass(frozen=True)
class InitReport(Report):
    """What `icecdc init` wrote.

    Attributes:
        output: The file.
        indexes: The names of the indexes in it.
        kind: ``init``.
        skipped: Tables that are not in it, each with the reason.
        content: The file's text.
        seconds: Seconds it took.
    """

    output: str
    indexes: list[str]
    kind: str = "init"
    skipped: list[str] = field(default_factory=list)
    content: str = ""
    seconds: float = 0.0

    @property
    def line(self) -> str:
        return f"{len(self.indexes):,} indexes in {self.output}"

    def card(self) -> Card:
        facts = [("Indexes", ", ".join(self.indexes)), ("Skipped", "\n".join(self.skipped)), ("Ended", self.ended)]
        return Card(self.word, self.output, self.line, facts, f"icecdc setup --file {shlex.quote(self.output)}")


@with_job_session
def write_index_file(spark: SparkSession, config: InitConfig) -> InitReport:
    """Write an index file for a table, or for every table of a namespace.

    Args:
        spark: A session that knows the catalog, see ``get_spark``.
        config: ``table`` names a table or a namespace. What else is given becomes the `defaults` of the file; secrets
            become references to environment variables.

    Raises:
        ConfigError: The file exists, or no table can be synced.
        TableNotFoundError: There is no such table or namespace.
    """
    begin = time.monotonic()
    entries: dict[str, list[str]] = {}
    skipped = []
    names = _tables(spark, config)
    for name in names:
        try:
            index = _index_name(split_table_name(name)[-1], entries)
            shared = {"catalog_properties": config.catalog_properties, "warehouse": config.warehouse}
            entries[index] = _entry(spark, SyncConfig(table=name, index=index, **shared))
        except IcecdcError as error:
            if names == [config.table]:
                raise
            skipped.append(f"{name}: {error}")
    if not entries:
        raise ConfigError(
            f"The namespace has no table that can be synced. {' '.join(skipped)}".strip(),
            subject="table",
            value=config.table,
            remedy="name an Iceberg table, or a namespace that has some",
        )
    lines = [*_head(config), *(line for name, entry in entries.items() for line in ["", f"  {_yaml(name)}:", *entry])]
    content = "\n".join(lines)
    try:
        with Path(config.output).expanduser().open("x", encoding="utf-8") as file:
            file.write(f"{content}\n")
    except OSError as error:
        raise ConfigError(
            f"The index file cannot be written: {error.strerror}",
            subject="output",
            value=config.output,
            remedy="name a new file in a folder that exists and may be written to",
        ) from error
    seconds = round(time.monotonic() - begin, 3)
    return InitReport(config.output, list(entries), skipped=skipped, content=content, seconds=seconds)


def _tables(spark: SparkSession, config: InitConfig) -> list[str]:
    name = ".".join(map(quoted, config.parts))
    try:
        if len(config.parts) > 2 and spark.catalog.tableExists(name):
            return [config.table]
        found = spark.sql(f"SHOW TABLES IN {name}").collect()
    except (PySparkException, Py4JError) as error:
        typed = catalog_error(error, spark, config.table)
        if isinstance(typed, TableNotFoundError):
            typed.message = "There is no such table or namespace"
        raise typed from error
    names = sorted(row["tableName"] for row in found)
    return [f"{config.table}.{quoted(each)}" for each in names if not each.startswith("icecdc_")]


def _index_name(table_name: str, taken: Collection[str]) -> str:
    name = _NOT_IN_AN_INDEX.sub("-", table_name.lower()).lstrip("-_+.") or "index"
    others = (f"{name}-{number}" for number in count(2))
    return next(each for each in chain([name], others) if each not in taken)


def _head(config: InitConfig) -> Iterator[str]:
    """The lines above the indexes: schema for editors, and what all indexes share."""
    yield f"# yaml-language-server: $schema={os.path.relpath(_SCHEMA, Path(config.output).absolute().parent)}"
    yield f"# Written by icecdc from up to {SAMPLE_ROWS:,} rows of each table. Read the comments, then check it:"
    yield f"#   icecdc setup --file {config.output}"
    yield ""
    yield "defaults:"
    for name in _SHARED:
        value = getattr(config, name)
        if value and (name in config.model_fields_set or name == "opensearch_url"):
            yield f"  {name}: {_yaml(_without_secrets(value))}"
    yield ""
    yield "indexes:"


def _without_secrets(value: Any) -> Any:
    """The value with a reference to a variable for each secret."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    return {
        key: f"env:{re.sub('[^A-Z0-9]+', '_', key.upper())}"
        if redact(key, text) == REDACTED
        else _without_secrets(text)
        for key, text in value.items()
    }


def _yaml(value: Any) -> str:
    """A value on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).removesuffix("...\n").strip()


def _entry(spark: SparkSession, config: SyncConfig) -> list[str]:
    with spark_errors(config):
        source = open_source(spark, config, needs_history=False)
        schema = source.table.schema()
        simple = [
            F.col(quoted(each.name)).cast("string") if isinstance(each.dataType, _TIMES) else F.col(quoted(each.name))
            for each in schema.fields
            if not isinstance(each.dataType, _NESTED) and each.name not in source.table.unreadable
        ]  # pandas cannot have every year
        try:
            sample = spark.table(config.quoted_table).select(*simple).limit(SAMPLE_ROWS).toPandas()
            identifiers, reason = list(source.identifier_columns), "the table's own identifier fields"
            if not identifiers:
                candidates = possible_identifiers(config.table_name, schema, sample)
                identifiers, reason = _first_unique(source, candidates), "unique in all rows"
        finally:
            source.table.release()
    return [f"    table: {_yaml(config.table)}", *describe(schema, sample, identifiers, reason)]


def _first_unique(source: Source, candidates: Iterable[tuple[str, ...]]) -> list[str]:
    """The first columns that identify every row of the current snapshot."""
    if source.head is None:
        return []
    rows = source.rows(source.table.plan(source.head))
    for columns in islice(candidates, _MOST_CHECKED):
        try:
            require_unique(rows, columns, str(source.table.name), allow_duplicates=False)
            return list(columns)
        except (DuplicateIdentifierError, IdentifierColumnsError):
            continue
    return []


def possible_identifiers(table: str, schema: T.StructType, sample: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield columns that identify each row of the sample: fewest first, and first those whose names say so."""
    ranks = {}
    for name in sample.columns:
        kind, values = schema[name].dataType, sample[name]
        if isinstance(kind, UNFIT_IDENTIFIERS) or values.empty or values.isna().any() or _is_personal(name, values):
            continue
        if not (isinstance(kind, T.StringType) and values.str.contains(r"\s").any()):
            ranks[name] = _rank(name.lower(), table.lower())
    ranked = sorted(ranks, key=lambda name: ranks[name])[:_MOST_COLUMNS]
    for number in range(1, _MOST_TOGETHER + 1):
        together = sorted(combinations(ranked, number), key=lambda names: sum(ranks[name] for name in names))
        for names in together:
            is_only_time = number == 1 and ranks[names[0]] == _TIME
            if not is_only_time and not sample.duplicated(list(names)).any():
                yield names


_TIME = 3
"""The rank of a column that is rarely unique alone, or only by chance."""


def _rank(name: str, table: str) -> int:
    if name in ("id", f"{table}_id", f"{table.removesuffix('s')}_id"):
        return 0
    if _TIME_NAME.search(name):
        return _TIME
    return 1 if re.search(r"(id|key|uuid|code|sku|number|no)$", name) else 2


def describe(schema: T.StructType, sample: pd.DataFrame, identifiers: Sequence[str], reason: str) -> list[str]:
    """Return the lines of an index below its table."""
    lines = []
    if identifiers:
        lines.append(f"    identifier_columns: {_yaml(list(identifiers))}  # {reason}")
    else:
        lines.append("    # No columns were found that identify a row: only appended rows can be synced without them.")
        lines.append("    # identifier_columns: []")
    columns = {name: sample[name].dropna() for name in sample.columns if sample[name].notna().any()}
    personal = [name for name, values in columns.items() if name not in identifiers and _is_personal(name, values)]
    texts = [name for name in personal if isinstance(schema[name].dataType, T.StringType)]
    if personal:
        lines.append(
            f"    # This looks personal: {', '.join(personal)}. To leave it out, and to have only a hash of it:"
        )
        lines.append(
            f'    #   select: ["* EXCEPT ({", ".join(map(quoted, personal))})"'
            + "".join(f', "sha2({quoted(name)}, 256) AS {quoted(name)}"' for name in texts)
            + "]"
        )
    mapping: dict[str, tuple[dict[str, Any], str]] = {}
    points = dict(_points(schema, columns))
    refused = []
    for column in schema.fields:
        try:
            check_supported(T.StructType([column]))
        except UnsupportedTypeError:
            refused.append(column.name)
    if points or refused:
        left_out = f" EXCEPT ({', '.join(map(quoted, refused))})" if refused else ""
        why = "  # OpenSearch cannot have these columns" if refused else ""
        lines += ["    select:", f"      - {_yaml(f'*{left_out}')}{why}"]
    for name, (latitude, longitude) in points.items():
        point = f"named_struct('lat', {quoted(latitude)}, 'lon', {quoted(longitude)})"
        lines.append(
            f"      - {_yaml(f'IF({quoted(latitude)} + {quoted(longitude)} IS NULL, NULL, {point}) AS {quoted(name)}')}"
        )
        mapping[name] = ({"type": "geo_point"}, "for distances and maps")
    for name, values in columns.items():
        if name not in refused and (found := _field_for(schema[name].dataType, name, values)):
            mapping[name] = found
    if mapping:
        lines.append(
            "    mapping:  # all other fields get theirs from the column's type; a string can be searched both ways"
        )
        lines += [f"      {_yaml(name)}: {_yaml(options)}  # {why}" for name, (options, why) in mapping.items()]
    return lines


def _is_personal(name: str, values: pd.Series[Any]) -> bool:
    mails = [value for value in values if isinstance(value, str) and _MAIL.fullmatch(value)]
    return bool(_PERSONAL.search(name)) or len(mails) > len(values) / 2


def _points(schema: T.StructType, columns: dict[str, pd.Series[Any]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield a field for each pair of a latitude and a longitude."""
    by_name = {name.lower(): name for name in columns if isinstance(schema[name].dataType, T.NumericType)}
    for lower, name in by_name.items():
        if not (found := _LATITUDE.match(lower)):
            continue
        other = next((by_name[each] for end in _LONGITUDE if (each := f"{found[1]}{end}") in by_name), None)
        inside = (
            other and columns[name].astype(float).abs().max() <= 90 and columns[other].astype(float).abs().max() <= 180
        )
        if other and inside and f"{found[1]}location" not in schema.names:
            yield f"{found[1]}location", (name, other)


def _field_for(data_type: T.DataType, name: str, values: pd.Series[Any]) -> tuple[dict[str, Any], str] | None:
    """A better field than the generated one, and why; None if that one is right."""
    if isinstance(data_type, T.StringType):
        if all(map(_DATE.fullmatch, values)):
            return {"type": "date", "format": "strict_date_optional_time"}, "every value of the sample is a date"
        different, longest = values.nunique(), int(values.str.len().max())
        is_word = not values.str.contains(r"\s").any() or different <= min(_MOST_CHOICES, len(values) // 10)
        if is_word and longest <= _LONGEST_KEYWORD:
            return {"type": "keyword"}, f"{different:,} different values of up to {longest} characters"
    if isinstance(data_type, T.LongType) and _TIME_NAME.search(name):
        for form, factor in _EPOCH.items():
            if values.between(_FIRST_SECOND * factor, _LAST_SECOND * factor).all():
                return {"type": "date", "format": form}, "every value of the sample is a time after 2000"
    return None
