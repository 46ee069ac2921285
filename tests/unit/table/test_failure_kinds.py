"""Which error a failure of Spark becomes, by its text and the exceptions in it; pure."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from icecdc_core.config import SyncConfig
from icecdc_core.errors import (
    DUPLICATE_MESSAGE,
    NULL_MESSAGE,
    ConfigError,
    DataReadError,
    DiskFullError,
    DuplicateIdentifierError,
    IcecdcError,
    IdentifierColumnsError,
    RejectedDocumentsError,
    SparkJobError,
)
from icecdc_core.table.failures import spark_errors

PLAIN = SyncConfig(table="lake.ns.t")
FILTER = SyncConfig(table="lake.ns.t", row_filter="1 / a > 0")
SELECT = SyncConfig(table="lake.ns.t", select=["1 / a AS b"])

MISSING = ("java.io.FileNotFoundException: a.parquet does not exist", "org.apache.hadoop.fs.RawLocalFileSystem.open")
DAMAGED = ("java.lang.RuntimeException: not a Parquet file", "org.apache.parquet.hadoop.ParquetFileReader.read")
REFUSED = ("java.nio.file.AccessDeniedException: a.parquet", "org.apache.hadoop.fs.s3a.S3AFileSystem.open")
NETWORK = ("java.net.SocketTimeoutException: Read timed out", "org.apache.parquet.hadoop.ParquetFileReader.read")
MEMORY = ("java.lang.OutOfMemoryError: Java heap space", "org.apache.spark.sql.catalyst.expressions.UnsafeRow.copy")
DIVISION = (
    "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
    "org.apache.spark.sql.errors.QueryExecutionErrors.divideByZeroError",
)


def raised(message: str) -> tuple[str, str]:
    """What an expression of the jobs raises."""
    text = f"org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {message} SQLSTATE: P0001"
    return text, "org.apache.spark.sql.errors.QueryExecutionErrors.raiseError"


def failure(*chain: tuple[str, str]) -> PySparkException:
    """A failed job with these exceptions, each with who threw it, outermost first."""
    lines = [f"Caused by: {text}\n\tat {thrower}(File.java:1)" for text, thrower in chain]
    return PySparkException("\n".join(["Job aborted due to stage failure: Lost task 0.0", *lines]))


def typed(config: SyncConfig, error: PySparkException) -> IcecdcError:
    with pytest.raises(IcecdcError) as caught, spark_errors(config):
        raise error
    return caught.value


class DescribeAFailureOfSpark:
    @pytest.mark.parametrize(
        ("config", "chain", "expected", "says"),
        [
            (PLAIN, [MISSING], DataReadError, "is missing"),
            (PLAIN, [DAMAGED], DataReadError, "is damaged"),
            (PLAIN, [REFUSED], DataReadError, "does not let the files"),
            # A broken connection rules out damage.
            (PLAIN, [DAMAGED, NETWORK], SparkJobError, "SocketTimeoutException"),
            # Whatever follows from a missing file.
            (PLAIN, [MEMORY, MISSING], DataReadError, "is missing"),
            (PLAIN, [MEMORY, DAMAGED], SparkJobError, "out of memory"),
            (
                PLAIN,
                [raised(f"{DUPLICATE_MESSAGE}: {{id: 1}}")],
                DuplicateIdentifierError,
                "duplicate identifier: {id: 1}",
            ),
            (PLAIN, [raised(f"{NULL_MESSAGE} in column id")], IdentifierColumnsError, "null identifier in column id"),
            (PLAIN, [DIVISION], SparkJobError, "DIVIDE_BY_ZERO"),
            (FILTER, [DIVISION], ConfigError, "row_filter fails"),
            (SELECT, [DIVISION], ConfigError, "select or row_filter fails"),
        ],
    )
    def it_is_named_by_what_it_follows_from(self, config, chain, expected, says):
        error = typed(config, failure(*chain))
        assert (type(error), says in str(error)) == (expected, True)

    @pytest.mark.parametrize(
        ("text", "expected", "says"),
        [
            ("write failed: No space left on device", DiskFullError, "disk space"),
            ("Python worker exited unexpectedly (crashed)", SparkJobError, "Python worker of Spark died"),
            ("ExecutorLostFailure (executor 1 exited)", SparkJobError, "lost an executor"),
            ("Cannot call methods on a stopped SparkContext.", SparkJobError, "or was stopped"),
            ("icecdc_core.errors.RejectedDocumentsError: 3 were rejected", RejectedDocumentsError, "3 were rejected"),
            ("something else", SparkJobError, "something else"),
        ],
    )
    def it_is_recognized_by_its_text(self, text, expected, says):
        error = typed(PLAIN, PySparkException(text))
        assert (type(error), says in str(error)) == (expected, True)

    def it_leaves_typed_errors_as_they_are(self):
        error = ConfigError("as it was")
        with pytest.raises(ConfigError) as caught, spark_errors(PLAIN):
            raise error
        assert caught.value is error

    @pytest.mark.parametrize("chain", [[DIVISION], [MEMORY]])
    def it_hides_the_failure_behind_it_if_a_select_may_mask_its_values(self, chain):
        assert typed(SELECT, failure(*chain)).__cause__ is None
        assert isinstance(typed(PLAIN, failure(*chain)).__cause__, PySparkException)
