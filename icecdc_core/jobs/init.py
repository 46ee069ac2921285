"""`icecdc init`: look at tables and write an index file for them; what a person should look at is a comment."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, combinations, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession, functions as F, types as T

from icecdc_core import errors
from icecdc_core.columns import NESTED, TIMES, UNFIT_IDENTIFIERS
from icecdc_core.config import SyncConfig
from icecdc_core.config.sync import InitConfig
from icecdc_core.config.values import join_table_name, split_table_name
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

SAMPLE_ROWS, SAMPLE_BYTES = 20_000, 64 * 1024 * 1024
_LONGEST_SAMPLED = 512  # characters of a value; a digest stands for the others
_SHARED = (
    *("opensearch_url", "opensearch_username", "opensearch_password"),
    *("catalog_properties", "warehouse", "spark_conf"),
)
_NOT_IN_AN_INDEX = re.compile(r'[\\/*?"<>|\s,#:]+')
_MOST_COLUMNS, _MOST_TOGETHER, _MOST_CHECKED = 12, 3, 5

_PERSONAL = re.compile(
    r"(^|_)(e?mail|phone|mobile|fax|ssn|iban|passport|birth(day|_?date)?|dob|(first|last|full|sur)_?name|street|address"
    r"|ip|tax_?id)(_|$)",
    re.IGNORECASE,
)
_TIME_NAME = re.compile(r"(^|_)(ts|time|timestamp|at|date|epoch)(_(s|ms))?$")
_LONGEST_KEYWORD, _MOST_CHOICES = 64, 50


@dataclass(frozen=True)
class InitReport(Report):
    """What `icecdc init` or `init-ingest` wrote.

    Attributes:
        output: The file.
        indexes: The names of the indexes, or ingests, in it.
        kind: ``init`` or ``init-ingest``.
        skipped: Tables or topics that are not in it, each with the reason.
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
        return f"{len(self.indexes):,} {'indexes' if self.kind == 'init' else 'ingests'} in {self.output}"

    def card(self) -> Card:
        names = "Indexes" if self.kind == "init" else "Ingests"
        facts = [(names, ", ".join(self.indexes)), ("Skipped", "\n".join(self.skipped)), ("Ended", self.ended)]
        command = "setup" if self.kind == "init" else "ingest"
        return Card(self.word, self.output, self.line, facts, f"icecdc {command} --file {shlex.quote(self.output)}")


@with_job_session
def write_index_file(spark: SparkSession, config: InitConfig) -> InitReport:
    """Write an index file for a table, or for every table of a namespace; secrets become references in it."""
    begin = time.monotonic()
    entries: dict[str, list[str]] = {}
    skipped = []
    names = _tables(spark, config)
    for name in names:
        try:
            base = _NOT_IN_AN_INDEX.sub("-", split_table_name(name)[-1].lower()).lstrip("-_+.") or "index"
            others = (f"{base}-{number}" for number in count(2))
            index = next(each for each in chain([base], others) if each not in entries)
            shared = {"catalog_properties": config.catalog_properties, "warehouse": config.warehouse}
            entries[index] = _entry(spark, SyncConfig(table=name, index=index, **shared))
        except errors.IcecdcError as error:
            if names == [config.table]:
                raise
            skipped.append(f"{name}: {error}")
    if not entries:
        raise errors.ConfigError(
            f"The namespace has no table that can be synced. {' '.join(skipped)}".strip(),
            subject="table",
            value=config.table,
            remedy="name an Iceberg table, or a namespace that has some",
        )
    given = [name for name in _SHARED if name in config.model_fields_set or name == "opensearch_url"]
    shared = {name: value for name in given if (value := getattr(config, name))}
    sampled = f"{SAMPLE_ROWS:,} rows of each table"
    content = write_file(config.output, "indexes", "setup", sampled, shared, entries)
    seconds = round(time.monotonic() - begin, 3)
    return InitReport(config.output, list(entries), skipped=skipped, content=content, seconds=seconds)


def write_file(
    output: str, section: str, command: str, sampled: str, defaults: Mapping[str, Any], entries: Mapping[str, list[str]]
) -> str:
    """Write a new file of entries; returns its content. Secrets become references in it."""
    schema = Path(__file__).parents[1] / "config" / f"{section}.schema.json"
    lines = [
        # By this line an editor finds the schema.
        f"# yaml-language-server: $schema={os.path.relpath(schema, Path(output).absolute().parent)}",
        f"# Written by icecdc from up to {sampled}. Read the comments, then run this:",
        f"#   icecdc {command} --file {shlex.quote(output)}",
        "",
        "defaults:",
        *(f"  {name}: {yaml_text(_without_secrets(value))}" for name, value in defaults.items()),
        "",
        f"{section}:",
        *(line for name, entry in entries.items() for line in ["", f"  {yaml_text(name)}:", *entry]),
    ]
    content = "\n".join(lines)
    try:
        with Path(output).open("x", encoding="utf-8") as file:
            file.write(f"{content}\n")
    except OSError as error:
        remedy = "name a new file in a folder that exists"
        raise errors.unwritable_error("output", output, error, remedy) from error
    return content


def _tables(spark: SparkSession, config: InitConfig) -> list[str]:
    name = ".".join(map(quoted, config.parts))
    try:
        if len(config.parts) > 2 and spark.catalog.tableExists(name):
            return [config.table]
        found = sorted(row["tableName"] for row in spark.sql(f"SHOW TABLES IN {name}").collect())
    except (PySparkException, Py4JError) as error:
        typed = catalog_error(error, spark, config.table)
        if isinstance(typed, errors.TableNotFoundError):
            typed.message = "There is no such table or namespace"
        raise typed from error
    return [join_table_name([*config.parts, each]) for each in found if not each.startswith("icecdc_")]


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if not isinstance(value, Mapping):
        return value
    return {
        key: f"env:{re.sub('[^A-Z0-9]+', '_', key.upper())}"
        if redact(key, text) == REDACTED
        else _without_secrets(text)
        for key, text in value.items()
    }


def yaml_text(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).removesuffix("...\n").strip()


def _entry(spark: SparkSession, config: SyncConfig) -> list[str]:
    with spark_errors(config):
        source = open_source(spark, config, needs_history=False)
        schema = source.table.schema()
        simple = [
            _for_pandas(each)
            for each in schema.fields
            if not isinstance(each.dataType, NESTED) and each.name not in source.table.unreadable
        ]
        try:
            rows = min(SAMPLE_ROWS, SAMPLE_BYTES // (_LONGEST_SAMPLED * max(1, len(simple))))
            sample = spark.table(config.table).select(*simple).limit(rows).toPandas()
            identifiers, reason = list(source.identifier_columns), "the table's own identifier fields"
            if not identifiers:
                candidates = possible_identifiers(config.table_name, schema, sample)
                identifiers, reason = _first_unique(source, candidates), "unique in all rows"
        finally:
            source.table.release()
    return [f"    table: {yaml_text(config.table)}", *describe(schema, sample, identifiers, reason)]


def _for_pandas(field: T.StructField) -> Column:
    """A column as pandas can have and compare it: not every year, no bytes (Spark 4.0's have no hash), no long text."""
    column = F.col(quoted(field.name))
    if isinstance(field.dataType, (T.StringType, T.BinaryType)):
        text = F.base64(column) if isinstance(field.dataType, T.BinaryType) else column
        cut = F.concat(F.left(text, F.lit(_LONGEST_SAMPLED)), F.sha2(text.cast("binary"), 256))
        return F.when(F.length(text) > F.lit(_LONGEST_SAMPLED), cut).otherwise(text).alias(field.name)
    return column.cast("string") if isinstance(field.dataType, TIMES) else column


def _first_unique(source: Source, candidates: Iterable[tuple[str, ...]]) -> list[str]:
    rows = source.rows(source.files(source.head))
    for columns in islice(candidates, _MOST_CHECKED):
        with suppress(errors.DuplicateIdentifierError, errors.IdentifierColumnsError):
            require_unique(rows, columns, str(source.table.name), allow_duplicates=False)
            return list(columns)
    return []


def possible_identifiers(table: str, schema: T.StructType, sample: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield columns that identify each row of the sample: fewest first, and first those whose names say so."""
    ranks = {}
    for name in sample.columns:
        kind, values = schema[name].dataType, sample[name]
        if isinstance(kind, UNFIT_IDENTIFIERS) or values.empty or values.isna().any() or _PERSONAL.search(name):
            continue
        if not (isinstance(kind, T.StringType) and values.str.contains(r"\s").any()):
            ranks[name] = _rank(name.lower(), table.lower())
    ranked = sorted(ranks, key=lambda name: ranks[name])[:_MOST_COLUMNS]
    for number in range(1, _MOST_TOGETHER + 1):
        for names in sorted(combinations(ranked, number), key=lambda names: sum(ranks[name] for name in names)):
            is_only_time = number == 1 and ranks[names[0]] == 3  # unique by chance
            if not is_only_time and not sample.duplicated(list(names)).any():
                yield names


def _rank(name: str, table: str) -> int:
    if name in ("id", f"{table}_id", f"{table.removesuffix('s')}_id"):
        return 0
    if _TIME_NAME.search(name):
        return 3
    return 1 if re.search(r"(id|key|uuid|code|sku|number|no)$", name) else 2


def describe(schema: T.StructType, sample: pd.DataFrame, identifiers: Sequence[str], reason: str) -> list[str]:
    lines = [f"    identifier_columns: {yaml_text(list(identifiers))}  # {reason}"]
    if not identifiers:
        nothing = "    # No columns were found that identify a row: only appended rows can be synced without them."
        lines = [nothing, "    # identifier_columns: []"]
    columns = {name: sample[name].dropna() for name in sample.columns if sample[name].notna().any()}
    if personal := [name for name in columns if name not in identifiers and _PERSONAL.search(name)]:
        lines += [
            f"    # This looks personal: {', '.join(personal)}. To leave it out:",
            f'    #   select: ["* EXCEPT ({", ".join(map(quoted, personal))})"]',
        ]
    mapping = []
    for name, values in columns.items():
        if not isinstance(schema[name].dataType, T.StringType):
            continue
        different, longest = values.nunique(), int(values.str.len().max())
        is_word = not values.str.contains(r"\s").any() or different <= min(_MOST_CHOICES, len(values) // 10)
        if is_word and longest <= _LONGEST_KEYWORD:
            why = f"{different:,} different values of up to {longest} characters"
            mapping.append(f"      {yaml_text(name)}: {{type: keyword}}  # {why}")
    if mapping:
        lines.append("    mapping:  # all other fields get theirs from the column's type")
    return [*lines, *mapping]
