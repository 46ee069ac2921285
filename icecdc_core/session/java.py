"""Find a Java installation that Spark or OpenSearch can run on; the error says what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from icecdc_core.errors import JavaNotFoundError

# Spark 4 supports 17 and 21. Its Hadoop calls `Subject.getSubject`, which fails from Java 23 on.
SPARK_MINIMUM, SPARK_MAXIMUM = 17, 22

# Reduced runtimes, as some pip packages have them, start but fail much later with a misleading message.
SPARK_MODULES = frozenset({"jdk.incubator.vector"})

_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
    "~/.asdf/installs/java/*",
)


@dataclass(frozen=True)
class JavaHome:
    """A Java installation."""

    path: Path
    version: int
    modules: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def executable(self) -> Path:
        """The `java` command of this installation."""
        return self.path / "bin" / "java"

    def has(self, modules: Iterable[str]) -> bool:
        """Whether it has all these modules; one that does not list its modules counts as complete."""
        return not self.modules or self.modules.issuperset(modules)


def find_spark_java() -> JavaHome:
    """Find the Java home for a local Spark session: 17 to 22; JAVA_HOME, then PATH, then the usual folders."""
    return find_java(SPARK_MINIMUM, SPARK_MAXIMUM, modules=SPARK_MODULES, purpose="Spark")


def find_java(
    minimum: int,
    maximum: int | None = None,
    *,
    modules: Iterable[str] = (),
    purpose: str = "",
    homes: Iterable[Path] | None = None,
) -> JavaHome:
    """Find the first Java home whose version is in the range and that has the modules."""
    found = []
    for java in installed_javas(homes):
        if minimum <= java.version and (maximum is None or java.version <= maximum) and java.has(modules):
            return java
        found.append(java)
    raise _not_found_error(found, minimum, maximum, frozenset(modules), purpose)


def installed_javas(homes: Iterable[Path] | None = None) -> Iterator[JavaHome]:
    """Yield every Java installation that can be read, each once, in the order of preference."""
    seen: set[Path] = set()
    for home in candidate_homes(os.environ) if homes is None else homes:
        java = read_java_home(home)
        if java is not None and java.path not in seen:
            seen.add(java.path)
            yield java


def candidate_homes(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield folders that may be Java homes: those of JAVA_HOME and PATH first, then the usual ones."""
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for pattern in _FOLDERS:
        folder = Path(pattern).expanduser()
        root = Path(folder.anchor)
        # Oldest first: the long-term versions that Spark is tested with come before the newest.
        yield from sorted(root.glob(str(folder.relative_to(root))), key=lambda home: (_version_of(home), home))


def read_java_home(home: Path) -> JavaHome | None:
    """Read version and modules of an installation; None if there is no usable `java` in the folder.

    The `release` file is read first, because starting a JVM takes a tenth of a second. Only for a folder without that
    file (a shim, macOS's /usr) is `java` started, to print its real home.
    """
    executable = home / "bin" / "java"
    if not (executable.is_file() and os.access(executable, os.X_OK)):
        return None
    version = _version_of(home)
    if version:
        listed = re.search(r'^MODULES="(.*)"', _release_text(home), re.MULTILINE)
        return JavaHome(home.resolve(), version, frozenset(listed[1].split() if listed else ()))
    settings = _ask(executable)
    real_home = re.search(r"^\s*java\.home = (.+)$", settings, re.MULTILINE)
    asked_version = parse_version(settings)
    if asked_version is None or real_home is None:
        return None
    return JavaHome(Path(real_home[1].strip()).resolve(), asked_version)


def parse_version(text: str) -> int | None:
    """The feature version in a `release` file or the output of `java -version`: 17 of 17.0.15, 8 of 1.8.0_402."""
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _version_of(home: Path) -> int:
    return parse_version(_release_text(home)) or 0


def _release_text(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _ask(executable: Path) -> str:
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout if answer.returncode == 0 else ""


def _not_found_error(
    found: list[JavaHome], minimum: int, maximum: int | None, modules: frozenset[str], purpose: str
) -> JavaNotFoundError:
    needed = f"Java {minimum}" + ("" if maximum == minimum else f" to {maximum}" if maximum else " or newer")
    for_what = f" for {purpose}" if purpose else ""
    described = [
        f"Java {java.version} in {java.path}"
        + ("" if java.has(modules) else f" (without {', '.join(sorted(modules - java.modules))})")
        for java in found
    ]
    example = 21 if minimum <= 21 <= (maximum or 21) else minimum
    return JavaNotFoundError(
        f"No suitable Java{for_what}: need {needed}, found {', '.join(described) or 'none'}",
        subject="JAVA_HOME",
        value=os.environ.get("JAVA_HOME", ""),
        remedy=f"install a full JDK {example} (apt install openjdk-{example}-jdk, brew install "
        f"openjdk@{example}, or sdk install java) and set JAVA_HOME to its folder if it is not in a usual place",
    )


_STDERR = 2
_SHOWN = 4000


@contextmanager
def jvm_output_to_file() -> Iterator[Path]:
    """Let a JVM that starts in the block write its output to the file that is yielded.

    If the block fails, the end of the file is shown on the standard error.
    """
    # The log names tables and paths, so it has a private folder: in a shared one somebody could prepare a link.
    log = Path(tempfile.mkdtemp(prefix="icecdc-spark-")) / "spark.log"
    stderr = os.dup(_STDERR)
    try:
        # The JVM inherits the file descriptor, whatever Python's sys.stderr is.
        with open(log, "xb", opener=_private) as file:
            os.dup2(file.fileno(), _STDERR)
        yield log
    except Exception:
        sys.stderr.write(log.read_text(encoding="utf-8", errors="replace")[-_SHOWN:])
        raise
    finally:
        os.dup2(stderr, _STDERR)
        os.close(stderr)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
