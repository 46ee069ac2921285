"""What a Java exception says about a file: by its class, its text and who threw it; pure."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from icecdc_core.session.java_causes import Cause, blamed_file, causes, failure_message, root_cause

HADOOP, ICEBERG = "org.apache.hadoop.fs.RawLocalFileSystem", "org.apache.iceberg.hadoop.HadoopInputFile"
PARQUET, PUFFIN, SHADED = (
    "org.apache.parquet.hadoop.ParquetFileReader",
    "org.apache.iceberg.puffin.PuffinReader",
    "org.apache.iceberg.shaded.org.apache.parquet.bytes.BytesUtils",
)
S3, SPARK = "software.amazon.awssdk.services.s3.DefaultS3Client", "org.apache.spark.storage.DiskStore"
ZSTD, CRYPTO = "com.github.luben.zstd.ZstdInputStreamNoFinalizer", "org.apache.parquet.crypto.AesCipher"


class DescribeBlamedFile:
    @pytest.mark.parametrize(
        ("kind", "text", "thrower", "expected"),
        [
            ("FileNotFoundException", "File a.parquet does not exist", HADOOP, True),
            ("NoSuchKeyException", "The specified key does not exist", S3, True),
            ("NotFoundException", "File does not exist: a.parquet", ICEBERG, True),
            # Spark's own temporary file.
            ("FileNotFoundException", "/tmp/spark/shuffle_0_1.data", SPARK, False),
            # Java says not found for a file that it may not open, or not now.
            ("FileNotFoundException", "a.parquet (Permission denied)", HADOOP, True),
            ("FileNotFoundException", "a.parquet (Too many open files)", HADOOP, False),
            ("AccessDeniedException", "s3a://b/a.parquet", HADOOP, True),
            ("AccessDeniedException", "/tmp/spark", SPARK, False),
            ("RuntimeException", "a.parquet is not a Parquet file", PARQUET, True),
            ("NegativeArraySizeException", "-7", SHADED, True),
            ("IllegalArgumentException", "Invalid magic", PUFFIN, True),
            ("ZstdIOException", "Corrupted block detected", ZSTD, True),
            ("EOFException", "Cannot seek after EOF", HADOOP, True),
            ("EOFException", "", SPARK, False),
            # A decoder's exceptions that say nothing about the bytes.
            ("UnsupportedOperationException", "Cannot read this encoding", PARQUET, False),
            ("OutOfMemoryError", "Java heap space", PARQUET, False),
            ("ParquetCryptoRuntimeException", "AAD mismatch", PARQUET, False),
            ("AEADBadTagException", "Tag mismatch", CRYPTO, False),
            ("IllegalStateException", "no codec", "org.apache.iceberg.spark.SparkTable", False),
            ("SocketTimeoutException", "Read timed out", PARQUET, False),
            ("HttpHostConnectException", "refused", S3, False),
            ("SSLHandshakeException", "PKIX path building failed", S3, False),
        ],
    )
    def it_is_found_by_class_and_thrower(self, kind, text, thrower, expected):
        assert (blamed_file([Cause(kind, text, thrower)]) is not None) is expected

    @pytest.mark.parametrize(("kind", "thrower"), [("NotFoundException", ICEBERG), ("RuntimeIOException", PARQUET)])
    def it_is_not_a_wrapper_of_another_failure(self, kind, thrower):
        wrapper = Cause(kind, "Failed to open a.parquet", thrower)
        assert blamed_file([wrapper]) is wrapper
        assert blamed_file([wrapper, Cause("IllegalStateException", "", "a.b.C")]) is None


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
            Cause("RuntimeIOException", "Failed to open", ICEBERG),
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
