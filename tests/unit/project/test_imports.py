"""What importing the package costs, and what it says when a package is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import icecdc_core
from icecdc_core.cli import COMMANDS

ROOT = Path(__file__).parents[3]
HEAVY = ("IPython", "matplotlib", "numpy", "opensearchpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "tqdm")
EXTRAS = ("IPython", "botocore", "matplotlib", "nbformat", "openlineage", "opentelemetry", "papermill", "tqdm")
TABLE = ["--table", "lake.ns.t", "--opensearch-url", "http://127.0.0.1:9"]
LOADED = f"import sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}} & {{*{HEAVY}}}))"
WITHOUT = """
import sys
for name in {missing}:
    sys.modules[name] = None
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def seconds_of(statement: str) -> float:
    """The CPU time of the shortest of several imports: that of the clock would measure what else the machine does."""
    code = f"import time; begin = time.process_time(); {statement}; print(time.process_time() - begin)"
    return min(float(python(code).stdout) for _ in range(3))


class DescribeImportingThePackage:
    def it_takes_less_than_half_a_second(self):
        assert seconds_of("import icecdc_core; from icecdc_core import SyncConfig") < 0.5

    @pytest.mark.parametrize(
        "statement",
        [
            "import icecdc_core",
            "from icecdc_core import SyncConfig, errors",
            "from icecdc_core.ingest import IngestConfig",
            "import icecdc_core.local.__main__",
        ],
    )
    def it_imports_no_heavy_package(self, statement):
        ended = python(f"{statement}; {LOADED}")
        assert (ended.stdout.split(), ended.stderr) == ([], "")

    def it_imports_every_job_without_the_packages_of_the_extras(self):
        blocked = WITHOUT.format(missing=EXTRAS)
        jobs = "import icecdc_core.jobs.many, icecdc_core.notebook; [command.job for command in COMMANDS.values()]"
        ended = python(f"{blocked}from icecdc_core.cli import COMMANDS; {jobs}; print(*sorted(COMMANDS))")
        assert (ended.stdout.split(), ended.stderr) == (sorted(COMMANDS), "")

    def it_imports_no_package_for_notebooks_with_the_jobs(self):
        names = ", ".join(icecdc_core.__all__)
        ended = python(f"from icecdc_core import {names}; {LOADED}")
        assert {*ended.stdout.split()} & {"IPython", "matplotlib", "pandas", "tqdm"} == set()

    @pytest.mark.parametrize("module", ["bulk", "index_pages"])
    def it_imports_no_parameters_in_spark_s_python_workers(self, module):
        ended = python(f"import sys, icecdc_core.opensearch.{module}; print('pydantic' in sys.modules)")
        assert (ended.stdout.strip(), ended.stderr) == ("False", "")

    def it_has_every_name_that_it_lists(self):
        found = {name: getattr(icecdc_core, name) for name in icecdc_core.__all__}
        assert [name for name, value in found.items() if value.__name__ != name] == []
        assert {*icecdc_core.__all__} <= {*dir(icecdc_core)}

    def it_has_its_packages_as_attributes(self):
        ended = python("import icecdc_core; print(icecdc_core.errors.IcecdcError, icecdc_core.changes.read_changes)")
        assert ended.stdout.count("icecdc_core") == 1
        assert "read_changes" in ended.stdout

    @pytest.mark.parametrize("name", ["exprot_table", "", "jobs.exprot", "no_room.name"])
    def it_says_of_any_other_text_that_it_is_no_attribute(self, name):
        assert not hasattr(icecdc_core, name)

    def it_has_no_other_name(self):
        with pytest.raises(AttributeError, match="has no attribute 'exprot_table'"):
            icecdc_core.exprot_table  # noqa: B018


class DescribeTheHelp:
    @pytest.mark.parametrize("arguments", [["--help"], ["sync", "--help"], ["--version"], ["services", "--help"]])
    def it_needs_neither_spark_nor_iceberg(self, arguments):
        blocked = WITHOUT.format(missing=HEAVY)
        ended = python(f"{blocked}from icecdc_core.__main__ import main; sys.exit(main({arguments}, 'icecdc'))")
        assert (ended.returncode, ended.stderr, "icecdc" in ended.stdout) == (0, "", True)


class DescribeAMissingPyspark:
    BLOCKED = WITHOUT.format(missing=("pyspark", "py4j"))

    @pytest.mark.parametrize(
        "statement",
        [
            "from icecdc_core import get_spark",
            "from icecdc_core import export_table, sync_changes",
            "from icecdc_core.changes import read_changes",
            "from icecdc_core.notebook import read_parameters",
            "from icecdc_core.ingest import ingest; ingest(None, None)",
        ],
    )
    def it_is_one_typed_error_that_names_the_remedy(self, statement):
        last = python(f"{self.BLOCKED}{statement}").stderr.splitlines()[-1]
        assert last.startswith("icecdc_core.errors.DependencyError: The package pyspark is not installed")
        assert 'Remedy: pip install "icecdc[local]"; or install pyspark 4.0 or 4.1' in last

    def it_leaves_the_parameters_usable(self):
        code = f"{self.BLOCKED}from icecdc_core import SyncConfig; print(SyncConfig(table='lake.ns.t').catalog)"
        assert python(code).stdout == "lake\n"

    def it_ends_a_command_with_one_line(self):
        ended = python(f"{self.BLOCKED}from icecdc_core.__main__ import console; sys.exit(console())", "sync", *TABLE)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
        assert ended.stderr.startswith("icecdc sync: The package pyspark is not installed")

    def it_ends_a_job_of_a_scheduler_with_a_report(self):
        ended = python(f"{self.BLOCKED}from icecdc_core.__main__ import main; sys.exit(main())", "sync", *TABLE)
        report = json.loads(ended.stdout)
        assert (report["state"], report["error"], report["stage"]) == ("config", "DependencyError", "session")


class DescribeAPysparkThatIsTooOld:
    OLD = """
import sys, types
import pyspark
pyspark.__version__ = "3.5.2"
"""

    @pytest.mark.parametrize(
        "statement", ["import icecdc_core", "from icecdc_core.shuffle import shuffle_by_identifiers"]
    )
    def it_is_refused_before_anything_else_is_imported(self, statement):
        last = python(f"{self.OLD}{statement}").stderr.splitlines()[-1]
        assert "DependencyError: icecdc does not support this Spark session: found Spark 3.5.2" in last

    # A process that has not imported pyspark yet, and finds one without what pyspark 4 added.
    OLD_AND_NOT_IMPORTED = """
import sys
import pyspark.sql.types
del pyspark.sql.types.VariantType
sys.modules["pyspark.version"].__version__ = "3.5.2"
del sys.modules["pyspark"]
"""

    @pytest.mark.parametrize("name", ["changes.read_changes", "notebook.read_parameters", "jobs.sync.sync_changes"])
    def it_is_refused_whatever_is_imported_first(self, name):
        module, _, function = name.rpartition(".")
        last = python(f"{self.OLD_AND_NOT_IMPORTED}from icecdc_core.{module} import {function}").stderr.splitlines()[-1]
        assert "DependencyError: icecdc does not support this Spark session: found Spark 3.5.2" in last


class DescribeAMissingPackageForNotebooks:
    def it_is_a_typed_error_where_a_figure_is_drawn(self):
        code = WITHOUT.format(missing=("matplotlib",)) + (
            "from icecdc_core import RunReport; RunReport('sync', 'lake.ns.t', 't').figure()"
        )
        last = python(code).stderr.splitlines()[-1]
        assert last.endswith("[package='matplotlib']. Remedy: pip install \"icecdc[notebook]\"")

    def it_shows_no_progress_bar_without_tqdm(self):
        code = WITHOUT.format(missing=("tqdm",)) + (
            "from icecdc_core.reporting.progress import progress\nwith progress(3, 'three'): pass\nprint('done')"
        )
        ended = python(code)
        assert (ended.stdout, ended.stderr) == ("done\n", "")
