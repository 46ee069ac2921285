"""What a Java exception says about a file: by its class, its text and who threw it; pure."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from icecdc_core.session.java_causes import Cause, causes, failure_message, root_cause

HADOOP, ICEBERG = "org.apache.hadoop.fs.RawLocalFileSystem", "org.apache.iceberg.hadoop.HadoopInputFile"
PARQUET, PUFFIN, SHADED = (
    "org.apache.parquet.hadoop.ParquetFileReader",
    "org.apache.iceberg.puffin.PuffinReader",
    "org.apache.iceberg.shaded.org.apache.parquet.bytes.BytesUtils",
)
S3, SPARK = "software.amazon.awssdk.services.s3.DefaultS3Client", "org.apache.spark.storage.DiskStore"
ZSTD, CRYPTO = "com.github.luben.zstd.ZstdInputStreamNoFinalizer", "org.apache.parquet.crypto.AesCipher"


def is_what(cause):
    """The names of what a cause is."""
    return {
        name for name in ("missing_file", "refused_file", "damaged_file", "network") if getattr(cause, f"is_{name}")
    }


class DescribeACause:
    @pytest.mark.parametrize(
        ("kind", "text", "thrower", "expected"),
        [
            ("FileNotFoundException", "File a.parquet does not exist", HADOOP, "missing_file"),
            ("NoSuchKeyException", "The specified key does not exist", S3, "missing_file"),
            ("NotFoundException", "File does not exist: a.parquet", ICEBERG, "missing_file"),
            # Spark's own temporary file.
            ("FileNotFoundException", "/tmp/spark/shuffle_0_1.data", SPARK, ""),
            # Java says not found for a file that it may not open, or not now.
            ("FileNotFoundException", "a.parquet (Permission denied)", HADOOP, "refused_file"),
            ("FileNotFoundException", "a.parquet (Too many open files)", HADOOP, ""),
            ("AccessDeniedException", "s3a://b/a.parquet", HADOOP, "refused_file"),
            ("AccessControlException", "Permission denied", HADOOP, "refused_file"),
            ("AccessDeniedException", "/tmp/spark", SPARK, ""),
            ("RuntimeException", "a.parquet is not a Parquet file", PARQUET, "damaged_file"),
            ("NegativeArraySizeException", "-7", SHADED, "damaged_file"),
            ("IllegalArgumentException", "Invalid magic", PUFFIN, "damaged_file"),
            ("ZstdIOException", "Corrupted block detected", ZSTD, "damaged_file"),
            ("EOFException", "Cannot seek after EOF", HADOOP, "damaged_file"),
            ("ChecksumException", "Checksum error", HADOOP, "damaged_file"),
            ("EOFException", "", SPARK, ""),
            # A decoder's exceptions that say nothing about the bytes.
            ("UnsupportedOperationException", "Cannot read this encoding", PARQUET, ""),
            ("OutOfMemoryError", "Java heap space", PARQUET, ""),
            ("ParquetCryptoRuntimeException", "AAD mismatch", PARQUET, ""),
            ("AEADBadTagException", "Tag mismatch", CRYPTO, ""),
            ("IllegalStateException", "no codec", "org.apache.iceberg.spark.SparkTable", ""),
            ("SocketTimeoutException", "Read timed out", PARQUET, "network"),
            ("ConnectTimeoutException", "", S3, "network"),
            ("HttpHostConnectException", "refused", S3, "network"),
            ("UnknownHostException", "minio", S3, "network"),
            ("SSLHandshakeException", "PKIX path building failed", S3, "network"),
        ],
    )
    def it_is_what_its_class_and_its_thrower_say(self, kind, text, thrower, expected):
        assert is_what(Cause(kind, text, thrower)) == set(filter(None, [expected]))

    @pytest.mark.parametrize(
        ("kind", "thrower", "alone"),
        [("NotFoundException", ICEBERG, {"missing_file"}), ("RuntimeIOException", PARQUET, {"damaged_file"})],
    )
    def it_is_nothing_itself_if_it_only_repeats_another_one(self, kind, thrower, alone):
        assert is_what(Cause(kind, "Failed to open a.parquet", thrower)) == alone
        assert is_what(Cause(kind, "Failed to open a.parquet", thrower, has_cause=True)) == set()


TEXT = f"""Job aborted: Lost task 0.0: org.apache.iceberg.exceptions.RuntimeIOException: Failed to open
	at {ICEBERG}.newStream(HadoopInputFile.java:183)
	at java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.FileNotFoundException: File a.parquet does not exist
	at java.base/java.io.FileInputStream.open0(Native Method)
	at {HADOOP}.deprecatedGetFileStatus(RawLocalFileSystem.java:917)
"""


class DescribeCauses:
    def it_finds_them_in_a_text_with_who_threw_them(self):
        assert causes(PySparkException(TEXT)) == [
            Cause("RuntimeIOException", "Failed to open", ICEBERG, has_cause=True),
            Cause("FileNotFoundException", "File a.parquet does not exist", HADOOP),
        ]

    def it_finds_none_in_a_text_without_frames(self):
        assert causes(PySparkException("java.io.EOFException: the end")) == []

    def it_puts_the_innermost_one_first_in_the_whole_text(self):
        assert root_cause(PySparkException(TEXT)).splitlines()[0] == (
            "java.io.FileNotFoundException: File a.parquet does not exist"
        )


class DescribeFailureMessage:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("\nfirst\nsecond", "first"),
            ("", ""),
            (
                "PythonException: Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: too big\n",
                "ValueError: too big",
            ),
        ],
    )
    def it_is_one_line_that_says_most(self, text, expected):
        assert failure_message(text) == expected
