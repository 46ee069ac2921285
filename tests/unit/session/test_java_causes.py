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
        first, *_ = root_cause(PySparkException(TEXT)).splitlines()
        assert first == "java.io.FileNotFoundException: File a.parquet does not exist"
        assert causes(PySparkException("java.io.EOFException: the end")) == []  # without frames


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\nfirst\nsecond", "first"),
        ("", ""),
        ("PythonException: Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: too big\n",
            "ValueError: too big"),
    ],
)  # fmt: skip
def it_makes_one_line_that_says_most_of_a_failure(text, expected):
    assert failure_message(text) == expected
