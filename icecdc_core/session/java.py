"""Find a Java installation that Spark or OpenSearch can run on; the error says what to install."""

import atexit
import glob
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from icecdc_core.errors import JavaNotFoundError
from icecdc_core.secrets import mask_secrets

# On Linux; on macOS those of installers, and of Homebrew on either kind of Mac.
_USUAL_HOMES = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)


def find_spark_java() -> Path:
    # Spark 4 supports 17 and 21. Its Hadoop calls `Subject.getSubject`, which fails from Java 23 on. Reduced runtimes,
    # as some pip packages have them, start but fail much later with a misleading message.
    return find_java(17, 22, modules=["jdk.incubator.vector"], purpose="Spark")


def find_java(minimum: int, maximum: int = 99, *, modules: Iterable[str] = (), purpose: str = "") -> Path:
    """Return the folder of the first installation that fits: that of JAVA_HOME, of the PATH, then the usual ones."""
    on_path = shutil.which("java")
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    homes += [Path(on_path).resolve().parent.parent] if on_path else []
    usual = (Path(name) for name in chain.from_iterable(map(glob.glob, _USUAL_HOMES)))
    # Oldest first: the long-term versions that Spark is tested with come before the newest.
    homes += sorted(usual, key=lambda home: (read_release(home)[0], home))
    found = []
    for home in dict.fromkeys(home.resolve() for home in homes):
        version, listed = read_release(home)
        lacking = sorted({*modules} - listed) if listed else []  # not all list their modules
        if minimum <= version <= maximum and not lacking:
            return home
        if version:
            found.append(f"Java {version} in {home}" + (f" (without {', '.join(lacking)})" if lacking else ""))
    up_to = f" to {maximum}" if maximum < 99 else " or newer"
    raise JavaNotFoundError(
        f"No suitable Java for {purpose}: need Java {minimum}{up_to}, found {', '.join(found) or 'none'}",
        subject="JAVA_HOME",
        value=os.environ.get("JAVA_HOME", ""),
        remedy="install a full JDK 21 and set JAVA_HOME to its folder",
    )


def read_release(home: Path) -> tuple[int, frozenset[str]]:
    """Read version and modules of an installation from its `release` file; version 0 if there is none."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    # The feature version: 17 of 17.0.15, 8 of 1.8.0_402.
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    listed = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    number = int(version[1]) if version and os.access(home / "bin" / "java", os.X_OK) else 0
    return number, frozenset(listed[1].split() if listed else ())


_STDERR = 2
_logs: list[Path] = []


@contextmanager
def jvm_output_to_file() -> Iterator[Path]:
    """Let a JVM that starts in the block write its output to the file that is yielded; if it fails, show its end."""
    # The log names tables and paths, so it has a private folder: in a shared one somebody could prepare a link.
    log = Path(tempfile.mkdtemp(prefix="icecdc-spark-")) / "spark.log"
    _logs.append(log)
    atexit.register(_remove_logs)
    stderr = os.dup(_STDERR)
    try:
        # The JVM inherits the file descriptor, whatever Python's sys.stderr is.
        with open(log, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            os.dup2(file.fileno(), _STDERR)
        yield log
    except Exception:
        os.dup2(stderr, _STDERR)
        sys.stderr.write(mask_secrets(log.read_text(encoding="utf-8", errors="replace"))[-4000:])
        raise
    finally:
        os.dup2(stderr, _STDERR)
        os.close(stderr)


def keep_jvm_output() -> Path | None:
    """Keep the file for the output of Spark's JVM; None if there is none."""
    return _logs.pop() if _logs else None


def _remove_logs() -> None:
    if getattr(sys, "last_value", None) is None:  # else the reader of the error may need them
        for log in _logs:
            shutil.rmtree(log.parent, ignore_errors=True)
