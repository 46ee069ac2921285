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
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from icecdc_core.errors import JavaNotFoundError
from icecdc_core.secrets import mask_secrets

# Spark 4 supports 17 and 21. Its Hadoop calls `Subject.getSubject`, which fails from Java 23 on.
SPARK_MINIMUM, SPARK_MAXIMUM = 17, 22

# Reduced runtimes, as some pip packages have them, start but fail much later with a misleading message.
SPARK_MODULES = frozenset({"jdk.incubator.vector"})

# On Linux; on macOS those of installers, and of Homebrew on either kind of Mac.
_USUAL_HOMES = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)


@dataclass(frozen=True)
class JavaHome:
    path: Path
    version: int
    modules: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def executable(self) -> Path:
        return self.path / "bin" / "java"


def find_spark_java() -> JavaHome:
    return find_java(SPARK_MINIMUM, SPARK_MAXIMUM, modules=SPARK_MODULES, purpose="Spark")


def find_java(minimum: int, maximum: int = 99, *, modules: Iterable[str] = (), purpose: str = "") -> JavaHome:
    found = []
    for java in filter(None, map(read_java_home, candidate_homes())):
        lacking = sorted({*modules} - java.modules) if java.modules else []  # not all list their modules
        if minimum <= java.version <= maximum and not lacking:
            return java
        found.append(f"Java {java.version} in {java.path}" + (f" (without {', '.join(lacking)})" if lacking else ""))
    up_to = f" to {maximum}" if maximum < 99 else " or newer"
    raise JavaNotFoundError(
        f"No suitable Java for {purpose}: need Java {minimum}{up_to}, found {', '.join(found) or 'none'}",
        subject="JAVA_HOME",
        value=os.environ.get("JAVA_HOME", ""),
        remedy="install a full JDK 21 and set JAVA_HOME to its folder",
    )


def candidate_homes() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parent.parent)
    names = chain.from_iterable(map(glob.glob, _USUAL_HOMES))
    usual = [home for name in names if (home := read_java_home(Path(name)))]
    # Oldest first: the long-term versions that Spark is tested with come before the newest.
    homes += [java.path for java in sorted(usual, key=lambda java: (java.version, java.path))]
    return list(dict.fromkeys(home.resolve() for home in homes))


def read_java_home(home: Path) -> JavaHome | None:
    """Read version and modules of an installation from its `release` file; None if there is none."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The feature version: 17 of 17.0.15, 8 of 1.8.0_402.
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    if version is None or not os.access(home / "bin" / "java", os.X_OK):
        return None
    listed = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    return JavaHome(home.resolve(), int(version[1]), frozenset(listed[1].split() if listed else ()))


_STDERR = 2
_SHOWN = 4000
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
        sys.stderr.write(mask_secrets(log.read_text(encoding="utf-8", errors="replace"))[-_SHOWN:])
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
