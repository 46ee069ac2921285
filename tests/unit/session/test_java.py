"""The choice of a Java installation, and the exceptions behind a failure, with who threw each."""

import os
import re
import stat
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException

from icecdc_core.errors import JavaNotFoundError
from icecdc_core.session import java
from icecdc_core.session.java import find_java, read_release
from icecdc_core.session.jvm import Cause, causes, root_cause


def install(home, release):
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(release)
    return home


@pytest.fixture
def homes(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "_USUAL_HOMES", (str(tmp_path / "none"), str(tmp_path / "usual" / "*")))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")

    def given(**releases):
        return [install(tmp_path / "usual" / name, release) for name, release in releases.items()]

    return given


def it_reads_version_and_modules_from_the_release_file_and_passes_over_a_folder_without_java(tmp_path):
    for release, version, modules in (
        ('JAVA_VERSION="17.0.15"', 17, []),
        ('IMPLEMENTOR="Eclipse"\nJAVA_VERSION="21"\nMODULES="java.base java.sql"\n', 21, ["java.base", "java.sql"]),
        ('JAVA_VERSION="1.8.0_402"', 8, []),
    ):
        assert read_release(install(tmp_path / str(version), release)) == (version, frozenset(modules))
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"')
    assert (read_release(tmp_path)[0], read_release(tmp_path / "none")[0]) == (0, 0)


class DescribeFindJava:
    def it_prefers_java_home_and_the_path_to_the_usual_folder_and_there_the_oldest(self, homes, tmp_path, monkeypatch):
        newer, older = homes(a='JAVA_VERSION="21"', b='JAVA_VERSION="17"')
        chosen, on_path = (install(tmp_path / name, 'JAVA_VERSION="17"') for name in ("chosen", "on-path"))
        link = tmp_path / "link"
        link.symlink_to(chosen)
        monkeypatch.setenv("JAVA_HOME", str(link))
        monkeypatch.setenv("PATH", str(on_path / "bin"))
        with pytest.raises(JavaNotFoundError) as caught:
            find_java(99)
        assert re.findall(r"Java \d+ in ([^,]+)", caught.value.message) == [*map(str, (chosen, on_path, older, newer))]

    def it_chooses_the_first_in_range_that_has_the_modules(self, homes):
        *_, newest = homes(a='JAVA_VERSION="11"', b='JAVA_VERSION="17"\nMODULES="java.base"\n', c='JAVA_VERSION="25"')
        (fits,) = homes(d='JAVA_VERSION="21"\nMODULES="java.base jdk.localedata"\n')
        assert find_java(17, 22, modules=["jdk.localedata"]) == fits
        assert find_java(22) == newest


@pytest.mark.parametrize(("fails", "shown", "left"), [(False, False, 0), (True, True, 1)])
def it_keeps_the_output_of_a_jvm_in_a_file_that_goes_unless_an_error_ends_the_process(tmp_path, fails, shown, left):
    code = (
        "import os; from icecdc_core.session.java import jvm_output_to_file\n"
        "with jvm_output_to_file():\n"
        "    os.write(2, b'what Java says: password=' b'hunt' b'er2\\n')\n"
        f"    assert not {fails}"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    logs = list(tmp_path.glob("icecdc-spark-*/spark.log"))
    texts = [path.read_text() for path in logs]
    assert ("what Java says: password=***" in ended.stderr, "hunter2" in ended.stderr) == (shown, False)
    assert texts == ["what Java says: password=hunter2\n"] * left
    modes = {stat.S_IMODE(path.stat().st_mode) for log in logs for path in (log, log.parent)}
    assert modes == ({0o600, 0o700} if left else set())


HADOOP, ICEBERG = "org.apache.hadoop.fs.RawLocalFileSystem", "org.apache.iceberg.hadoop.HadoopInputFile"

TEXT = f"""Job aborted: Lost task 0.0: org.apache.iceberg.exceptions.RuntimeIOException: Failed to open
	at {ICEBERG}.newStream(HadoopInputFile.java:183)
	at java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.FileNotFoundException: File a.parquet does not exist
	at java.base/java.io.FileInputStream.open0(Native Method)
	at {HADOOP}.deprecatedGetFileStatus(RawLocalFileSystem.java:917)
"""


def it_finds_them_in_a_text_with_who_threw_them():
    assert causes(PySparkException(TEXT)) == [
        Cause("RuntimeIOException", "Failed to open", ICEBERG),
        Cause("FileNotFoundException", "File a.parquet does not exist", HADOOP),
    ]
    first, *_ = root_cause(PySparkException(TEXT)).splitlines()
    assert first == "java.io.FileNotFoundException: File a.parquet does not exist"
    assert causes(PySparkException("java.io.EOFException: the end")) == []  # without frames
