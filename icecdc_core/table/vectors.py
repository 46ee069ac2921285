"""Vectors of texts: a model makes each once, an Iceberg table keeps it, and documents get it from there.

A vector is known by the SHA-256 of its text and the version of the model. What is missing is stored before a batch
begins; what reads documents later (a validation, a repair) never asks the model. Two runs may store the vector of one
text twice: the older one counts.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from math import ceil
from operator import attrgetter
from threading import Lock, Timer
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window, functions as F
from pyspark.sql.types import ArrayType, FloatType, StringType, StructField, StructType

from icecdc_core.columns import OWN_PREFIX, is_insert, quoted
from icecdc_core.config import SyncConfig
from icecdc_core.config.entries import Embedding, nested_tables
from icecdc_core.dependencies import keep_archive_caches
from icecdc_core.errors import NO_VECTOR_MESSAGE, ConfigError, EmbeddingError
from icecdc_core.logs import event
from icecdc_core.session.jvm import failure_message, persisted, root_cause
from icecdc_core.table.catalogs import create_table_once, forget_cached, usable_table
from icecdc_core.table.select import Projection, open_projection
from icecdc_core.table.source import Embeddings, Source

SCHEMA = "model string, text_sha256 string, dimension int, vector array<float>, embedded_at timestamp"
# Vectors are looked up by digests, in any order: rows of a file are sorted by them and come in small groups, so that
# the vectors of a few texts are found without reading all.
_PROPERTIES = {
    "write.distribution-mode": "none",
    "write.parquet.row-group-size-bytes": str(1024 * 1024),
    "commit.retry.num-retries": "20",  # of runs of several indexes
}
_ABOUT = "The table of vectors", "embed_table"
_TEXT, _KEY, _VECTOR = (f"{OWN_PREFIX}{name}" for name in ("text", "text_sha256", "vector"))
FEW_TEXTS = 200
"""Iceberg compares no more values with the bounds of a file."""
_TEXTS_OF_A_TASK = 32
_storing: defaultdict[tuple[str, str], Lock] = defaultdict(Lock)
"""The indexes that one process syncs at once make no vector twice."""


def open_embeddings(source: Source, config: SyncConfig) -> Source:
    spark, schema, computed_from, nested = source.table.spark, source.schema, frozenset[str](), source.nested
    if not config.embed:
        return source
    columns = source.projection.repeated if source.projection else {name: name for name in schema.names}
    texts = {}
    for name, entry in config.embeddings.items():
        if name.lower() in (known.lower() for known in schema.names):
            raise _refused(name, "is a field of the document, too", "give it another name")
        try:
            found = texts[name] = open_projection(spark, source.schema, [f"({entry.text}\n) AS {_TEXT}"], "", (), {})
        except ConfigError as error:
            problem = error.message.removeprefix("select ").replace("the table's columns", "the document's fields")
            remedy = "give a deterministic expression over the fields of the document: "
            raise _refused(name, problem, remedy + ", ".join(source.schema.names)) from error
        if not isinstance(found.schema[_TEXT].dataType, StringType):
            raise _refused(
                name,
                f"has a text of the type {found.schema[_TEXT].dataType.simpleString()}",
                "give a string, with concat_ws(' ', a, b) or a cast",
            )
        paths = (path.partition(".") for path in found.computed_from)
        computed_from |= {f"{columns[field]}{dot}{rest}" for field, dot, rest in paths if field in columns}
        if found.used_columns & config.nest.keys():  # whatever changes the type of a nested value may change the text
            nested = {table: _computed_from_all_columns(each) for table, each in nested.items()}
            if config.table in nested_tables(config.entries):
                computed_from |= {*source.columns}
        schema = StructType([*schema.fields, StructField(name, ArrayType(FloatType()))])
    embeddings = Embeddings(config.embed_name, config.embeddings, texts, computed_from)
    return replace(source, schema=schema, nested=nested, embeddings=embeddings)


def _computed_from_all_columns(source: Source) -> Source:
    assert source.projection is not None, "a nested source has one"
    texts = tuple(f"({text})" for text in source.projection.stored)  # order counts for any `*`
    return replace(source, projection=replace(source.projection, computed_from=frozenset(source.columns), stored=texts))


def _refused(field: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"embed.{field} {problem}", subject="embed", value=field, remedy=remedy)


def with_vectors(source: Source, rows: DataFrame, few: bool = False, required: bool = True) -> DataFrame:
    """Add the vectors of documents; without ``required`` a missing one is null, with ``few`` only theirs are read."""
    if source.embeddings is None:
        return rows
    for name, entry in source.embeddings.fields.items():
        columns = [F.col(quoted(column)) for column in rows.columns]
        rows = _with_text(rows, source.embeddings.texts[name]).withColumn(_KEY, F.sha2(_TEXT, 256))
        vectors = stored_vectors(rows, source.embeddings.table, entry, few)
        # Not a row number: Spark would sort all vectors before it shuffles them, too.
        oldest = Window.partitionBy(_KEY).orderBy("embedded_at", _VECTOR)
        vectors = vectors.withColumn(_TEXT, F.lag(F.lit(1)).over(oldest)).where(F.col(_TEXT).isNull())
        rows = rows.join(vectors.select(_KEY, _VECTOR), _KEY, "left")
        vector = F.col(_VECTOR)
        if required:
            missing = F.raise_error(F.lit(f"{NO_VECTOR_MESSAGE} embed.{name}"))
            vector = F.when(F.col(_KEY).isNull() | vector.isNotNull(), vector).otherwise(missing)
        rows = rows.select(*columns, vector.alias(name))
    return rows


def _with_text(rows: DataFrame, text: Projection) -> DataFrame:
    """Add the text of documents, where `*` means their fields; null for a DELETE, whose fields may be null."""
    rows = text.apply(rows.select(*map(quoted, text.columns), "*"))
    return rows.withColumn(_TEXT, F.when(is_insert(), F.make_valid_utf8(F.col(_TEXT))))  # pyarrow takes no other


def stored_vectors(rows: DataFrame, table: str, entry: Embedding, few: bool) -> DataFrame:
    """Return the vectors of a model; if rows have few texts, only theirs."""
    spark = rows.sparkSession
    with usable_table(*_ABOUT, table):
        if exists := spark.catalog.tableExists(table):
            forget_cached(spark, table)  # another process may have stored some
        known = spark.table(table) if exists else spark.createDataFrame([], SCHEMA)
        known = known.where((F.col("model") == entry.model) & (F.col("dimension") == entry.dimension))
        known = known.select(F.col("text_sha256").alias(_KEY), F.col("vector").alias(_VECTOR), "embedded_at")
    if few and exists:
        keys = rows.select(_KEY).dropna().distinct().collect()
        known = known.where(F.col(_KEY).isin([key for (key,) in keys]))
    return known


def _new_texts(embeddings: Embeddings, name: str, rows: DataFrame, few: bool = False) -> DataFrame:
    texts = _with_text(rows, embeddings.texts[name]).select(_TEXT).dropna().distinct()
    texts = texts.withColumn(_KEY, F.sha2(_TEXT, 256))
    known = stored_vectors(texts, embeddings.table, embeddings.fields[name], few).select(_KEY)
    return texts.join(known, _KEY, "left_anti")


def count_new_texts(source: Source, rows: DataFrame) -> int:
    embeddings = source.embeddings
    return sum(_new_texts(embeddings, name, rows).count() for name in embeddings.fields) if embeddings else 0


def store_vectors(source: Source, rows: DataFrame, timeout_seconds: float, few: bool = False) -> None:
    assert source.embeddings is not None
    spark, table = rows.sparkSession, source.embeddings.table
    for name, entry in source.embeddings.fields.items():
        with _storing[table, entry.model], persisted(_new_texts(source.embeddings, name, rows, few)) as missing:
            if count := missing.count():
                event(f"making the vectors of {count:,} texts", field=name, model=entry.model)
                with usable_table(*_ABOUT, table):
                    create_table_once(spark, table, SCHEMA, _PROPERTIES, partition="model")
                _store(name, entry, missing, count, table, timeout_seconds)


def _store(name: str, entry: Embedding, missing: DataFrame, count: int, table: str, timeout_seconds: float) -> None:
    spark = missing.sparkSession
    tasks = min(spark.sparkContext.defaultParallelism, ceil(count / _TEXTS_OF_A_TASK))
    vectors = (
        missing.repartitionByRange(tasks, _KEY)
        .sortWithinPartitions(_KEY)
        .mapInArrow(partial(_embed, entry), "text_sha256 string, vector array<float>")
        .withColumns({"model": F.lit(entry.model), "dimension": F.lit(entry.dimension)})
    )
    began = time.monotonic()
    with persisted(vectors) as made:
        try:
            with _time_limit(spark, timeout_seconds):
                made.count()
        except (PySparkException, Py4JError) as error:
            problem = f"failed: {failure_message(root_cause(error))}"
            if 0 < timeout_seconds < time.monotonic() - began:
                problem = f"took longer than {timeout_seconds:g} seconds (embed_timeout_seconds)"
            raise EmbeddingError(
                f"The model of embed.{name} {problem}",
                subject="embed",
                value={name: entry.function},
                remedy="correct the function, or give it more time or fewer texts at once (embed_timeout_seconds, for "
                "an export export_group_bytes); nothing was written, and vectors that are stored are not made again",
            ) from error
        with usable_table(*_ABOUT, table):
            # The time is taken when all are there, or they would be older than any that others stored.
            vectors = made.withColumn("embedded_at", F.current_timestamp())
            vectors.select(*spark.table(table).columns).writeTo(table).append()


def _embed(entry: Embedding, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    keep_archive_caches()
    module, _, name = entry.function.partition(":")
    function = attrgetter(name)(import_module(module))
    for batch in batches:
        if batch.num_rows:
            vectors = checked_vectors(function(batch.column(_TEXT).to_pandas()), batch.num_rows, entry.dimension)
            yield pa.RecordBatch.from_arrays([batch.column(_KEY), vectors], names=["text_sha256", "vector"])


def checked_vectors(found: Any, count: int, dimension: int) -> pa.Array:
    """Return what a model made of texts; refused unless each has one finite vector of the dimension."""
    vectors = list(found)
    if len(vectors) != count:
        raise ValueError(f"it returned {len(vectors)} vectors of {count} texts")
    lengths = {len(vector) for vector in vectors}
    if lengths != {dimension}:
        raise ValueError(f"it returned vectors of {sorted(lengths - {dimension})[0]} numbers, not {dimension}")
    numbers = np.asarray(vectors, dtype="float32")
    if not np.isfinite(numbers).all():
        raise ValueError("it returned a number that is not finite")
    return pa.ListArray.from_arrays(np.arange(0, numbers.size + 1, dimension, dtype="int32"), pa.array(numbers.ravel()))


@contextmanager
def _time_limit(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Cancel Spark's jobs of the block when the time is over; 0 is no limit."""
    context, tag = spark.sparkContext, f"icecdc-embed-{uuid4().hex}"
    timer = Timer(seconds, context.cancelJobsWithTag, [tag])
    timer.daemon = True
    context.addJobTag(tag)
    if seconds:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        context.removeJobTag(tag)
