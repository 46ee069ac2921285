"""What a demo leaves and finds: the clone that it runs in, the folder for its results, its indexes."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError, DependencyError, IcecdcError
from icecdc_core.opensearch.client import Connection
from icecdc_core.reporting.progress import print_line

ROOT = Path(__file__).resolve().parents[1]
# A demo is over before Java's second compiler pays, which takes a third of its time. Without it Java has 48 MB
# for compiled code, and Spark fills them.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"


def run_in_folder(work: Callable[[], bool], output: Path) -> int:
    """Run a demo with an empty folder for its results, and print how it ended."""
    begin = time.monotonic()
    os.environ.setdefault("JDK_JAVA_OPTIONS", _JAVA_OPTIONS)
    # Kernels run in their own process and must find this package even when it is not installed.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    try:
        require_clone()
        make_empty(output)
        equal = work()
    except IcecdcError as error:
        print_line(f"The demo stopped: {error}", sys.stderr)
        return 1
    verdict = "Every index equals its table" if equal else "NOT every index equals its table"
    print_line(f"{verdict}. {time.monotonic() - begin:.0f} s in all.")
    return 0 if equal else 1


def require_clone() -> None:
    """Refuse to run outside of a clone."""
    missing = [name for name in ("notebooks", "data") if not (ROOT / name).is_dir()]
    if missing:
        raise DependencyError(
            f"The demo needs the folder {missing[0]} of the repository",
            subject="folder",
            value=str(ROOT / missing[0]),
            remedy="run `make demo` in a clone of the repository",
        )


def make_empty(output: Path) -> None:
    """Remove the results of an earlier demo and make the folder."""
    marker = output / ".icecdc-demo"
    if output.exists() and not marker.exists() and any(output.iterdir()):
        raise ConfigError(
            "The folder for the results holds files that no demo wrote",
            subject="--output",
            value=str(output),
            remedy="give an empty folder, or one that does not exist yet",
        )
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    marker.touch()


def remove_indexes(configs: Mapping[str, SyncConfig]) -> None:
    """Remove the demo's indexes and positions: those of an earlier demo belong to tables that were dropped."""
    one = next(iter(configs.values()))
    names = [f"{config.index}--*" for config in configs.values()]
    with closing(Connection.of(one).client()) as client:
        client.indices.delete(
            index=",".join([*names, one.positions_index]),
            params={"ignore_unavailable": "true", "expand_wildcards": "all"},
        )


def display_path(path: Path) -> str:
    """The path as it is printed: relative to the clone when it is inside."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
