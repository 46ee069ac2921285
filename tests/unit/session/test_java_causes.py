"""The exceptions behind a failure, with who threw each; pure."""

import pytest
from pyspark.errors import PySparkException

from icecdc_core.session.java_causes import Cause, causes, failure_message, root_cause

HADOOP, ICEBERG = "org.apache.hadoop.fs.RawLocalFileSystem", "org.apache.iceberg.hadoop.HadoopInputFile"

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
