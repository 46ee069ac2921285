"""Versions of packages, the folders of the user, and what Python's workers do at the start of a task."""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zipimport import zipimporter


def installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from source"


def user_folder(variable: str, default: str) -> Path:
    """Return icecdc's folder below the one that an XDG variable names, which must be absolute, or below the default."""
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / default) / "icecdc"


def keep_archive_caches() -> None:
    """Keep the directories of zip archives in memory, as Python 3.9 did; called first in a task."""
    # Until version 4.2 (SPARK-54744), Spark invalidates Python's import caches at the start of every task. Python 3.11
    # then reads the directory of each archive again (cpython#103200): 0.2 s for that of PySpark.
    if sys.version_info < (3, 12):
        zipimporter.invalidate_caches = lambda importer: None  # type: ignore[assignment, method-assign]
