"""`make test SUITE=traces`: record what the fault tests do, and check every trace against the specification.

Usage: python -m tests.model.traces <folder> <how many>. The fault tests run first. Random lives of an index, with one
seed after the other, make up what is missing. It fails if a test fails or a trace is refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.model.translation import Trace, translate
from tests.model.validation import validate

# Tests that send OpenSearch what no run sends: an operation of long ago, the deletion of an index that is in use.
_FORGED = ("DescribeALateWriter", "it_names_an_index_that_is_deleted_during_the_run")


def read_traces(folder: Path) -> list[Trace]:
    """Return the traces of a folder in which runs alone wrote the index, and a batch was committed."""
    recorded = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.json"))]
    traces = [translate(each) for each in recorded if not any(name in each["test"] for name in _FORGED)]
    return [trace for trace in traces if trace.commits]


def main(folder: Path, wanted: int) -> int:
    """Record, validate and print; return the exit code."""
    seed, found = int(os.environ.get("ICECDC_SEED", "20261121")), list[Trace]()
    for attempt in range(5):
        missing = wanted - len(found)
        if missing <= 0:
            break
        tests = "tests/faults" if attempt == 0 else "tests/faults/test_recorded_runs.py"
        chosen = {"ICECDC_TRACES": str(folder / str(attempt)), "ICECDC_SEED": str(seed + attempt)}
        chosen |= {"ICECDC_LIVES": str(missing)} if attempt else {}
        which = "" if attempt else "not long"
        command = [sys.executable, "-m", "pytest", "-q", "--timeout", "0", "-m", which, tests]
        if code := subprocess.run(command, env={**os.environ, **chosen}).returncode:
            return code
        found = read_traces(folder)
    refused = [verdict for verdict in validate(found) if verdict.refused is not None]
    print(*refused, sep="\n")
    events, runs = sum(len(trace.events) for trace in found), sum(trace.runs for trace in found)
    print(f"{len(found)} traces with {events:,} events of {runs} runs, {len(refused)} refused")
    if short := Counter(trace.end for trace in found if trace.end):
        print("Checked only up to an event that the model does not have:")
        print("\n".join(f"  {count} traces: {reason}" for reason, count in short.most_common()))
    return int(len(found) < wanted or bool(refused))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
