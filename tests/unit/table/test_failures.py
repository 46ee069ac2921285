"""Which error a failure of Spark becomes, by the exceptions behind it, and which values it shows; pure."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from icecdc_core.config import SyncConfig
from icecdc_core.errors import (
    DUPLICATE_MESSAGE,
    NULL_MESSAGE,
    CatalogAuthError,
    CatalogError,
    ConfigError,
    DataReadError,
    DependencyError,
    DiskFullError,
    DuplicateIdentifierError,
    IcecdcError,
    IdentifierColumnsError,
    SparkJobError,
    TableNotFoundError,
)
from icecdc_core.session.jvm import Cause
from icecdc_core.table import failures
from icecdc_core.table.catalogs import catalog_error, usable_table
from icecdc_core.table.failures import blamed_file, spark_errors

TABLE = "lake.ns.t"
PLAIN = SyncConfig(table=TABLE)
FILTER = SyncConfig(table=TABLE, row_filter="cast(note AS int) > 0")
SELECT = SyncConfig(table=TABLE, select=["cast(note AS int) AS n"])
EMBED = SyncConfig(
    table=TABLE, embed={"v": {"text": "cast(1 / n AS string)", "function": "a:b", "model": "1", "dimension": 2}}
)
FILE = "s3a://b/t/data/email=planted%40x.org/00000-1-a.parquet"

HADOOP, PARQUET = "org.apache.hadoop.fs.s3a.S3AFileSystem", "org.apache.parquet.hadoop.ParquetFileReader"
ICEBERG, SPARK = "org.apache.iceberg.hadoop.HadoopInputFile", "org.apache.spark.sql.errors.QueryExecutionErrors"
MISSING = ("java.io.FileNotFoundException", f"File {FILE} does not exist", HADOOP)
DAMAGED = ("java.lang.RuntimeException", f"{FILE} is not a Parquet file", PARQUET)
FORBIDDEN = (
    *("software.amazon.awssdk.services.s3.model.S3Exception", "null (Service: S3, Status Code: 403)"),
    "software.amazon.awssdk.protocols.xml.internal.unmarshall.AwsXmlPredicatedResponseHandler",
)
NO_CREDENTIALS = "Unable to load credentials from any of the providers in the chain"
NETWORK = ("java.net.SocketTimeoutException", "Read timed out", PARQUET)
INVALID = ("org.apache.iceberg.exceptions.ValidationException", "DV", "org.apache.iceberg.DeleteFileIndex")
OPENED = ("org.apache.iceberg.exceptions.NotFoundException", f"Failed to open {FILE}", ICEBERG)
DIVISION = ("org.apache.spark.SparkArithmeticException", "[DIVIDE_BY_ZERO] Division by zero.", SPARK, "22012")
FORMAT = ("org.apache.spark.SparkIllegalArgumentException", "[INVALID_FORMAT.MISMATCH_INPUT] 999", SPARK, "42601")
PATTERN = ("java.util.regex.PatternSyntaxException", "Unclosed group near index 1", "scala.util.matching.Regex")


def cast_of(value: str) -> tuple[str, ...]:
    text = f'[CAST_INVALID_INPUT] The value \'{value}\' of the type "STRING" cannot be cast to "INT".'
    return "org.apache.spark.SparkNumberFormatException", text, SPARK, "22018"


def raised(message: str) -> tuple[str, ...]:
    return "org.apache.spark.SparkRuntimeException", f"[USER_RAISED_EXCEPTION] {message}", SPARK, "P0001"


def java_exception(chain):
    (name, text, thrower, *state), *rest = chain
    known = {"getSqlState": lambda: state[0], "getCondition": lambda: text.partition("]")[0].removeprefix("[")}
    return SimpleNamespace(
        getMessage=lambda: text,
        getClass=lambda: SimpleNamespace(getSimpleName=lambda: name.rpartition(".")[2]),
        getStackTrace=lambda: [SimpleNamespace(getClassName=lambda: thrower)],
        getCause=lambda: java_exception(rest) if rest else None,
        **(known if state else {"getCondition": Mock(side_effect=Py4JError("Method getCondition([]) does not exist"))}),
    )


def failed(*chain: tuple[str, ...], text: str = "") -> PySparkException:
    """An error of Spark with these exceptions behind it, outermost first."""
    error = PySparkException(text or "\n".join(f"Caused by: {name}: {text}" for name, text, *_ in chain))
    error._origin = java_exception(chain) if chain else None
    return error


def typed(config: SyncConfig, *chain: tuple[str, ...], text: str = "") -> IcecdcError:
    with pytest.raises(IcecdcError) as caught, spark_errors(config):
        raise failed(*chain, text=text)
    return caught.value


class DescribeAFailureOfSpark:
    @pytest.mark.parametrize(
        ("config", "chain", "expected", "says"),
        [
            (PLAIN, [OPENED, MISSING], DataReadError, "cannot be read: FileNotFoundException"),
            (PLAIN, [FORBIDDEN], DataReadError, "Status Code: 403"),
            (PLAIN, [INVALID], DataReadError, "Iceberg refuses"),
            # No file is to blame.
            (PLAIN, [DAMAGED, NETWORK], SparkJobError, "SocketTimeoutException"),
            (FILTER, [PATTERN], ConfigError, "row_filter fails"),
            (FILTER, [FORMAT], ConfigError, "row_filter fails"),
            (EMBED, [DIVISION], ConfigError, "embed fails for a row of 'lake.ns.t': [DIVIDE_BY_ZERO]"),
            (SELECT, [DIVISION], ConfigError, "select fails for a row of 'lake.ns.t': DIVIDE_BY_ZERO"),
        ],
    )  # fmt: skip
    def it_is_named_by_what_it_follows_from(self, config, chain, expected, says):
        error = typed(config, *chain)
        assert (type(error), says in str(error)) == (expected, True), error

    def it_is_recognized_by_its_text(self):
        for text, expected, says in (
            ("write failed: No space left on device", DiskFullError, "disk space"),
            ("icecdc_core.errors.DuplicateIdentifierError: 2 rows", DuplicateIdentifierError, "2 rows"),
            ('java.io.IOException: Cannot run program "./bin/python": error=2', DependencyError, "executors"),
        ):
            error = typed(PLAIN, text=text)
            assert (type(error), says in str(error)) == (expected, True)

    @pytest.mark.parametrize("config", [PLAIN, FILTER, SELECT])
    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            (f'{DUPLICATE_MESSAGE}: two rows have {{"id":"7"}}', DuplicateIdentifierError),
            (f'{DUPLICATE_MESSAGE}: two rows have {{"id":"7","\\"x\\":null":"null"}}', DuplicateIdentifierError),
            (f'{DUPLICATE_MESSAGE}: two rows have {{"id":"7","x":null}}', IdentifierColumnsError),
            (f"{NULL_MESSAGE} in column id", IdentifierColumnsError),
        ],
    )
    def it_names_an_identifier_that_is_null_or_there_twice(self, config, message, expected):
        error = typed(config, raised(message))
        assert (type(error), message in str(error)) == (expected, True)


REFUSED = "org.apache.iceberg.exceptions.ForbiddenException"


def it_asks_for_access_to_a_catalog_only_if_it_was_refused():
    for kind, text, expected in (
        (REFUSED, "Forbidden: not in the role", CatalogAuthError),
        ("org.apache.iceberg.exceptions.NotAuthorizedException", "Not authorized: client", CatalogAuthError),
        ("software.amazon.awssdk.core.exception.SdkClientException", NO_CREDENTIALS, CatalogAuthError),
        ("software.amazon.awssdk.services.glue.model.GlueException", "(Status Code: 500)", CatalogError),
        ("org.apache.iceberg.exceptions.NoSuchTableException", "Table does not exist", TableNotFoundError),
    ):  # fmt: skip
        error = failed(("org.apache.spark.SparkException", "no", SPARK), (kind, text, ICEBERG))
        found = catalog_error(error, SimpleNamespace(conf=SimpleNamespace(getAll={})), TABLE)
        assert (type(found), text in str(found)) == (expected, expected is not TableNotFoundError)


def it_says_whether_a_table_of_its_own_is_named_wrongly_or_cannot_be_used_now():
    for error, expected in (
        (failed((REFUSED, "no", ICEBERG)), ConfigError),
        (failed(OPENED, ("java.net.ConnectException", "Connection refused", HADOOP)), CatalogError),
        (Py4JNetworkError("gone"), SparkJobError),
    ):
        with pytest.raises(expected), usable_table("The table of vectors", "embed_table", "lake.ns.v"):
            raise error


class DescribeAValueThatASelectMasks:
    def it_is_not_shown_and_not_taken_for_another_failure(self):
        for value in (
            *("null identifier in column 4111", "duplicate identifier: 4111", "No space left on device 4111"),
            *("[USER_RAISED_EXCEPTION] duplicate identifier: 4111", "icecdc_core.errors.DiskFullError: 4111"),
        ):
            error, condition = typed(SELECT, cast_of(value)), typed(FILTER, cast_of(value))
            assert [type(each) for each in (error, condition)] == [ConfigError] * 2
            assert ("4111" in str(error), error.subject, condition.subject) == (False, "select", "row_filter")

    def it_is_in_no_other_error_either_nor_in_what_is_behind_it(self):
        for chain in (
            [("java.lang.IllegalStateException", "Python worker failed for planted", SPARK)],
            *([MISSING], [DAMAGED], [OPENED, ("java.net.SocketException", "Reset", HADOOP)]),
        ):
            error = typed(SELECT, *chain)
            assert ("planted" in str(error), error.__cause__) == (False, None)
            shown = str(typed(FILTER, *chain))
            assert "planted" in shown or "Reset" in shown


def it_says_what_to_do_if_the_java_process_ended_which_is_not_asked_for_the_table_again(monkeypatch):
    refused = ConnectionRefusedError(111, "Connection refused")
    expected = r"Java process ended .*ConnectionRefusedError.*spark\.driver\.memory"
    with pytest.raises(SparkJobError, match=expected), spark_errors(FILTER):
        raise refused
    monkeypatch.setattr(failures, "IcebergTable", Mock(side_effect=refused))
    table = SimpleNamespace(spark=None, name=TABLE)
    with pytest.raises(SparkJobError, match=r"Java process ended .*Py4JNetworkError"), spark_errors(FILTER, table):
        raise Py4JNetworkError("Answer from Java side is empty")


PUFFIN, CRYPTO = "org.apache.iceberg.puffin.PuffinReader", "org.apache.parquet.crypto.AesCipher"
S3, DISK = "software.amazon.awssdk.services.s3.DefaultS3Client", "org.apache.spark.storage.DiskStore"
ZSTD = "com.github.luben.zstd.ZstdInputStreamNoFinalizer"


class DescribeBlamedFile:
    @pytest.mark.parametrize(
        ("kind", "text", "thrower", "expected"),
        [
            ("NoSuchKeyException", "The specified key does not exist", S3, True),
            # Spark's own temporary file.
            ("FileNotFoundException", "/tmp/spark/shuffle_0_1.data", DISK, False),
            # Java says not found for a file that it may not open, or not now.
            ("FileNotFoundException", "a.parquet (Permission denied)", HADOOP, True),
            ("FileNotFoundException", "a.parquet (Too many open files)", HADOOP, False),
            ("AccessDeniedException", "s3a://b/a.parquet", HADOOP, True),
            ("IllegalArgumentException", "Invalid magic", PUFFIN, True),
            ("ZstdIOException", "Corrupted block detected", ZSTD, True),
            ("EOFException", "Cannot seek after EOF", HADOOP, True),
            ("EOFException", "", DISK, False),
            # A decoder's exceptions that say nothing about the bytes.
            ("UnsupportedOperationException", "Cannot read this encoding", PARQUET, False),
            ("OutOfMemoryError", "Java heap space", PARQUET, False),
            ("AEADBadTagException", "Tag mismatch", CRYPTO, False),
            ("IllegalStateException", "no codec", "org.apache.iceberg.spark.SparkTable", False),
            ("SocketTimeoutException", "Read timed out", PARQUET, False),
        ],
    )
    def it_is_found_by_class_and_thrower(self, kind, text, thrower, expected):
        assert (blamed_file([Cause(kind, text, thrower)]) is not None) is expected

    def it_is_not_a_wrapper_of_another_failure(self):
        for kind, thrower in (("NotFoundException", ICEBERG), ("RuntimeIOException", PARQUET)):
            wrapper, other = Cause(kind, "Failed to open", thrower), Cause("IllegalStateException", "", "a.b.C")
            assert (blamed_file([wrapper]), blamed_file([wrapper, other])) == (wrapper, None)
