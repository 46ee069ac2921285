"""What importing the package costs, what it says when one is missing, and the demo."""

import json
import subprocess
import sys
from pathlib import Path

from demo.__main__ import INDEX_FILE, _overrides, _parser, main
from demo.searches import commands_to_try
from icecdc_core.cli import COMMANDS

ROOT = Path(__file__).parents[3]
HEAVY = ("IPython", "numpy", "opensearchpy", "pandas", "pyarrow", "pyiceberg", "pyspark")
EXTRAS = ("IPython", "botocore", "nbformat", "opentelemetry", "papermill")
LOADED = f"import sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}} & {{*{HEAVY}, *{EXTRAS}}}))"
WITHOUT = """
import sys
for name in {missing}:
    sys.modules[name] = None
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def it_imports_no_heavy_package_and_every_job_without_the_packages_of_the_extras():
    parts = "from icecdc_core.ingest import IngestConfig; import icecdc_core.local.__main__"
    jobs = "import icecdc_core.jobs.many, icecdc_core.notebook; [command.job() for command in COMMANDS.values()]"
    names = f"from icecdc_core.cli import COMMANDS; {jobs}; print(*sorted(COMMANDS))"
    attributes = "import icecdc_core; icecdc_core.errors.IcecdcError; icecdc_core.config.SyncConfig"
    light = f"{attributes}; from icecdc_core import SyncConfig, errors; {parts}; {LOADED}"
    ended = python(f"{light}{WITHOUT.format(missing=EXTRAS)}{names}")
    assert (ended.stdout.splitlines(), ended.stderr) == (["", " ".join(sorted(COMMANDS))], "")


def it_ends_a_task_that_writes_documents_without_importing_pandas():
    imports = "from icecdc_core.opensearch import bulk, client"
    writer = "bulk.BulkWriter(client.Connection('http://127.0.0.1:9'), 'films--000001--WRITE', 1024, 1, 0.0, 0)"
    ended = python(f"{imports}; [answer] = {writer}.write_partition([]); print(answer.schema.names[-1]); {LOADED}")
    result, loaded = ended.stdout.splitlines()
    assert (result, "pyarrow" in loaded, "pandas" in loaded) == ("result", True, False)


def it_is_one_typed_error_without_pyspark_and_ends_a_command_with_one_line_and_a_report():
    blocked = WITHOUT.format(missing=("pyspark", "py4j"))
    last = python(f"{blocked}from icecdc_core import export_table").stderr.splitlines()[-1]
    assert last.startswith("icecdc_core.errors.DependencyError: The package pyspark is not installed")
    last = python(f"{WITHOUT.format(missing=('py4j',))}from icecdc_core import export_table").stderr.splitlines()[-1]
    assert last.startswith("icecdc_core.errors.DependencyError: The package py4j is not installed")
    code = f"{blocked}from icecdc_core.__main__ import console; sys.exit(console())"
    ended = python(code, "sync", "--table", "lake.ns.t", "--opensearch-url", "http://127.0.0.1:9", "--json")
    report = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr.count("\n"), report["error"]) == (2, 1, "DependencyError")
    assert ended.stderr.startswith("icecdc sync: The package pyspark is not installed")
    assert 'Remedy: pip install "icecdc[local]"; or install pyspark 4.0 or 4.1' in ended.stderr


def it_has_unit_tests_where_the_modules_are():
    unit, core = ROOT / "tests" / "unit", ROOT / "icecdc_core"
    tests = [path.relative_to(unit) for path in unit.rglob("test_*.py") if path.parent.name != "project"]
    modules = {path: core / path.with_name(path.name.removeprefix("test_")) for path in tests}
    assert [str(path) for path, module in modules.items() if not module.exists()] == []


class DescribeTheDemo:
    def it_leaves_a_folder_alone_that_no_demo_made(self, tmp_path, capsys):
        (tmp_path / "thesis.txt").write_text("ten years of work")
        assert main(["--output", str(tmp_path)]) == 1
        assert (tmp_path / "thesis.txt").exists()
        assert "no demo wrote" in capsys.readouterr().err

    def it_names_no_secret_in_the_commands_to_try(self, monkeypatch):
        monkeypatch.setenv("ICECDC_CATALOG_PROPERTIES", '{"type": "rest", "credential": "hunter2"}')
        given = ["--opensearch-username", "reader", "--opensearch-password", "env:SECRET"]
        overrides = _overrides(_parser().parse_args(given), "http://127.0.0.1:9222", Path("/a folder"))
        text = " ".join(commands_to_try(overrides, INDEX_FILE))
        assert ("hunter2" in text, '--catalog-properties "$ICECDC_CATALOG_PROPERTIES"' in text) == (False, True)
