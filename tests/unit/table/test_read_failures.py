"""Spark's failures as typed errors, from their texts: which failure it is, and which values are shown."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from icecdc_core.config import SyncConfig
from icecdc_core.errors import (
    ConfigError,
    DataReadError,
    DuplicateIdentifierError,
    IcecdcError,
    IdentifierColumnsError,
    SparkJobError,
)
from icecdc_core.table import failures
from icecdc_core.table.failures import spark_errors
from icecdc_core.table.iceberg_table import StagedScan

TASK = "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0"
TABLE = "lake.ns.t"
SELECT = SyncConfig(table=TABLE, select=["cast(note AS int) AS n"])
FILTER = SyncConfig(table=TABLE, row_filter="cast(note AS int) > 0")
FILE = "s3a://b/t/data/email=planted%40x.org/00000-1-a.parquet"


def failed(config: SyncConfig, exception: str, thrower: str = "org.apache.spark.sql.errors.Errors.of") -> IcecdcError:
    """The typed error of a task that ended with a Java exception."""
    with pytest.raises(IcecdcError) as raised, spark_errors(config):
        raise PySparkException(f"{TASK}\nCaused by: {exception}\n\tat {thrower}(A.java:1)")
    return raised.value


def cast_of(value: str) -> str:
    return (
        f"org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '{value}' of the type "
        '"STRING" cannot be cast to "INT" because it is malformed. SQLSTATE: 22018'
    )


def raised_in_spark(message: str) -> str:
    return f"org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {message} SQLSTATE: P0001"


class DescribeAValueThatReadsLikeAnotherFailure:
    @pytest.mark.parametrize(
        "value",
        [
            "null identifier in column 4111",
            "duplicate identifier: 4111",
            "[USER_RAISED_EXCEPTION] duplicate identifier: 4111",
            "icecdc_core.errors.DiskFullError: 4111",
            "No space left on device 4111",
            "Python worker failed 4111",
        ],
    )
    def it_is_a_failed_expression_that_shows_no_value(self, value):
        error = failed(SELECT, cast_of(value))
        assert (type(error), error.subject) == (ConfigError, "select")
        assert "4111" not in str(error)
        condition = failed(FILTER, cast_of(value))
        assert (type(condition), condition.subject) == (ConfigError, "row_filter")

    def it_is_not_shown_when_a_worker_dies(self):
        error = failed(SELECT, "java.lang.IllegalStateException: Python worker failed for 4111")
        assert isinstance(error, SparkJobError)
        assert "4111" not in str(error)


def with_failure(error, table=None):
    with spark_errors(FILTER, table):
        raise error


class DescribeAJavaProcessThatEnded:
    def it_is_named_with_what_to_do(self):
        with pytest.raises(SparkJobError, match=r"Java process ended .*ConnectionRefusedError") as raised:
            with_failure(ConnectionRefusedError(111, "Connection refused"))
        assert "spark.driver.memory" in str(raised.value)

    def it_is_not_asked_for_the_table_again(self, monkeypatch):
        def refused(*_):
            raise ConnectionRefusedError(111, "Connection refused")

        monkeypatch.setattr(failures, "IcebergTable", refused)
        with pytest.raises(SparkJobError, match="Answer from Java side is empty"):
            with_failure(Py4JNetworkError("Answer from Java side is empty"), SimpleNamespace(spark=None, name=TABLE))

    @pytest.mark.parametrize("has_table_cache", [False, True])
    def it_needs_no_release_of_what_was_staged(self, has_table_cache):
        class Ended:
            def taskSets(self):
                raise ConnectionRefusedError(111, "Connection refused")

        scan = StagedScan(None, TABLE, None, Ended(), has_table_cache)
        scan._staged.append("key")
        scan.release()
        assert scan._staged == []


class DescribeAnIdentifier:
    @pytest.mark.parametrize(
        ("message", "kind"),
        [
            ('duplicate identifier: two different rows were inserted in one step with {"id":"7"}', "duplicate"),
            ("null identifier in column id", "null"),
        ],
    )
    def it_is_named_when_it_is_null_or_there_twice(self, message, kind):
        expected = DuplicateIdentifierError if kind == "duplicate" else IdentifierColumnsError
        for config in (SELECT, FILTER):
            error = failed(config, raised_in_spark(message))
            assert type(error) is expected
            assert message in str(error)


class DescribeAFileThatCannotBeRead:
    @pytest.mark.parametrize(
        ("exception", "thrower", "said"),
        [
            (
                f"java.io.FileNotFoundException: File {FILE} does not exist",
                "org.apache.hadoop.fs.s3a.S3AFileSystem.open",
                "is missing: 00000-1-a.parquet",
            ),
            (
                f"java.lang.RuntimeException: {FILE} is not a Parquet file",
                "org.apache.parquet.hadoop.ParquetFileReader.readFooter",
                "is damaged: RuntimeException: 00000-1-a.parquet",
            ),
        ],
        ids=["missing", "damaged"],
    )
    def it_is_named_without_its_folder_when_select_may_mask_a_partition(self, exception, thrower, said):
        error = failed(SELECT, exception, thrower)
        assert isinstance(error, DataReadError)
        assert said in str(error)
        assert "planted" not in str(error)
        assert FILE in str(failed(FILTER, exception, thrower))

    def it_is_not_shown_when_the_connection_to_it_breaks(self):
        opened = f"org.apache.iceberg.exceptions.RuntimeIOException: Failed to open Parquet file: {FILE}"
        text = (
            f"Lost task 0.0: {opened}\n\tat a.b.C.d(C.java:1)\njava.net.SocketException: Reset\n\tat a.b.C.d(C.java:1)"
        )
        with pytest.raises(SparkJobError, match="SocketException: Reset") as raised, spark_errors(SELECT):
            raise PySparkException(text)
        assert "planted" not in str(raised.value)
