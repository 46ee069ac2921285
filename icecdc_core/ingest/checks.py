"""Checks of a staged batch: queries over its rows, and over the table with them, that must find no row."""

import re
import uuid
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F

from icecdc_core.columns import quoted
from icecdc_core.errors import ConfigError, FailedCheckError
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.dead_letters import POSITION
from icecdc_core.ingest.destinations import METADATA_PREFIX
from icecdc_core.ingest.formats.decode_results import IS_DELETE
from icecdc_core.ingest.rows import ROW
from icecdc_core.ingest.writes import StagedWrite
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.jvm import active_session, persisted
from icecdc_core.table.catalogs import describe_failure, load_table

VIEWS = {"batch", "staged"}
_REMEDY = (
    "write one query that returns what is wrong, such as SELECT * FROM batch WHERE amount < 0; it reads batch (the "
    "batch's rows) and staged (the table with them)"
)
_SHOWN_ROWS, _SHOWN_CHARACTERS = 10, 150
_MOST_ROUNDS = 3


def check_queries(spark: SparkSession, config: IngestConfig) -> None:
    """Refuse checks that are no query over `batch` and `staged`, before the first record."""
    if not (checks := [each for own in (config, *config.of_tables.values()) for each in own.checks.items()]):
        return
    own_session = spark.newSession()
    own_session.conf.set("spark.sql.debug.maxToStringFields", str(2**31 - 1))
    parser: Any = own_session._jsparkSession.sessionState().sqlParser()
    for name, text in checks:
        try:
            with active_session(own_session):
                parser.parsePlan(text)  # the whole text is one statement, and as the next line says, a query
                plan = str(parser.parsePlan(f"SELECT * FROM (\n{text}\n)").toString())  # noqa: S608
        except (PySparkException, Py4JError) as error:
            problem = f"is no query: {describe_failure(error)[:300]}"
        else:
            own = {each.strip() for names in re.findall(r"CTE \[(.*?)\]", plan) for each in names.split(",")}
            others = sorted({*re.findall(r"UnresolvedRelation \[(.*?)\]", plan)} - VIEWS - own)
            if not others:
                continue
            problem = f"reads {', '.join(others)}"
        raise ConfigError(f"The check {name} {problem}", subject="checks", value=text, remedy=_REMEDY)


def find_failed_records(
    spark: SparkSession, name: str, staged: StagedWrite, config: IngestConfig, rounds: int
) -> DataFrame | None:
    """Run the checks; returns the records that fail them, each with its reason, or None if no check finds a row.

    Raises:
        FailedCheckError: A check found rows, and `on_failed_check` is `hold`.
    """
    load_table(spark, name)  # the catalog may have cached the table as it was before
    view, failed = f"_icecdc_batch_{uuid.uuid4().hex}", list[DataFrame]()
    with persisted(staged.written) as written:
        own = {f"{METADATA_PREFIX}{column}": F.col(column) for column in (*config.metadata_columns, *POSITION)}
        rows = written.where(f"NOT {IS_DELETE}")
        rows.select(f"{quoted(ROW)}.*", *(value.alias(column) for column, value in own.items())).createTempView(view)
        try:
            for check, text in config.checks.items():
                found = _find_rows(spark, name, view, staged.snapshot.entry.snapshot_id, check, text)
                row = F.left(F.to_json(F.struct("*")), F.lit(_SHOWN_CHARACTERS)).alias("row")
                if not (shown := [mask_secrets(each.row) for each in found.limit(_SHOWN_ROWS).select(row).collect()]):
                    continue
                if config.on_failed_check == "hold":
                    raise FailedCheckError(
                        f"The check {check} finds rows: {'; '.join(shown)}",
                        subject="checks",
                        value=name,
                        remedy="mend the records, the table or the check; the next run reads the records again. With "
                        "on_failed_check=dead_letter, records that fail become dead letters",
                    )
                failed.append(_records(found, written, f"check {check}", rounds < _MOST_ROUNDS))
        finally:
            spark.catalog.dropTempView(view)
    return reduce(DataFrame.unionByName, failed).dropDuplicates(list(POSITION)) if failed else None


def _find_rows(spark: SparkSession, name: str, view: str, snapshot_id: int | None, check: str, text: str) -> DataFrame:
    views = f"batch AS (TABLE {view}), staged AS (SELECT * FROM {name} VERSION AS OF {snapshot_id})"  # noqa: S608
    try:
        return spark.sql(f"WITH {views} SELECT * FROM (\n{text}\n)")  # noqa: S608
    except AnalysisException as error:
        raise ConfigError(
            f"The check {check} cannot be run: {describe_failure(error)[:500]}",
            subject="checks",
            value=text,
            remedy=_REMEDY,
        ) from error


def _records(found: DataFrame, written: DataFrame, reason: str, is_named: bool) -> DataFrame:
    """Return the records of the batch that a check names; all of them if it names none."""
    names = [f"{METADATA_PREFIX}{column}" for column in POSITION]
    records = written.select(*POSITION)
    if is_named and {*names} <= {*found.columns}:
        named = found.selectExpr(*(f"{theirs} AS {ours}" for theirs, ours in zip(names, POSITION, strict=True)))
        named = records.join(named, list(POSITION), "left_semi").localCheckpoint()
        records = records if named.isEmpty() else named
    return records.withColumn("problem", F.lit(reason))
