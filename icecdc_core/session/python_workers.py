"""Code that Spark's Python workers run at the start of a task."""

from __future__ import annotations

import os
import sys
from functools import cache
from zipimport import zipimporter


@cache
def reread_only_changed_archives() -> None:
    """Cache the directories of the zip archives on Python's path until their files change; called first in a task.

    Until version 4.2 (SPARK-54744), Spark invalidates Python's import caches at the start of every task. Python 3.10
    and 3.11 then read the directory of each archive again (cpython#103200): 0.2 s for that of PySpark.
    """
    if sys.version_info >= (3, 12):
        return
    reread = zipimporter.invalidate_caches
    archives = {found.archive for found in sys.path_importer_cache.values() if isinstance(found, zipimporter)}
    known = {archive: _state(archive) for archive in archives}

    def invalidate_caches(importer: zipimporter) -> None:
        state = _state(importer.archive)
        if state is None or known.get(importer.archive) != state:
            reread(importer)
            known[importer.archive] = state

    zipimporter.invalidate_caches = invalidate_caches  # type: ignore[assignment, method-assign]


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
