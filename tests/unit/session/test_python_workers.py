"""Tasks of Python workers start without reading unchanged archives again."""

from __future__ import annotations

import importlib
import sys
import zipimport
from zipfile import ZipFile

import pyarrow as pa
import pytest

from icecdc_core.session.python_workers import reread_only_changed_archives


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A zip on the path with one module; returns what puts others into it."""
    path = tmp_path / "modules.zip"

    def write(*names):
        with ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(f"{name}.py", f"name = {name!r}")

    write("archived_one")
    monkeypatch.syspath_prepend(path)
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", zipimport.zipimporter.invalidate_caches)
    importlib.import_module("archived_one")
    reread_only_changed_archives.cache_clear()
    reread_only_changed_archives()
    yield write
    reread_only_changed_archives.cache_clear()
    for name in ("archived_one", "archived_two"):
        sys.modules.pop(name, None)


class DescribeArchives:
    def it_reads_none_again_that_has_not_changed(self, archive, monkeypatch):
        read = []
        monkeypatch.setattr(zipimport, "_read_directory", read.append)
        importlib.invalidate_caches()
        assert read == []

    def it_reads_one_again_that_has_changed(self, archive):
        archive("archived_one", "archived_two")
        importlib.invalidate_caches()
        assert importlib.import_module("archived_two").name == "archived_two"

    def it_forgets_one_that_is_gone(self, archive, tmp_path):
        (tmp_path / "modules.zip").unlink()
        importlib.invalidate_caches()
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("archived_two")


class DescribeATask:
    @pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python reads archives when they are needed")
    def it_leaves_the_worker_reading_only_changed_archives(self, spark):
        def counted(batches):
            """How often this worker has read an archive since it first came by here."""
            import importlib.util
            import zipimport

            if zipimport.zipimporter not in sys.path_hooks:
                # The workers of tests look into no archives, see `tests/quick_daemon.py`; this one does, as others do.
                sys.path_hooks.insert(0, zipimport.zipimporter)
                sys.path_importer_cache.clear()
                importlib.util.find_spec("a_module_that_is_nowhere")
                reread_only_changed_archives.cache_clear()
            reread_only_changed_archives()
            if not hasattr(zipimport, "reads"):
                zipimport.reads, read = [], zipimport._read_directory
                zipimport._read_directory = lambda path: zipimport.reads.append(path) or read(path)
            yield pa.RecordBatch.from_pydict({"n": [len(zipimport.reads) for _ in batches][:1]})

        counts = [row.n for _ in range(3) for row in spark.range(1).mapInArrow(counted, "n long").collect()]
        assert counts == [0, 0, 0]
