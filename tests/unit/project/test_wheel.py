"""What `make dist` builds: the package and nothing else, with metadata that say what it needs."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "icecdc_core"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# The packages by the name that Python imports, where it is another one.
DISTRIBUTIONS = {"opensearchpy": "opensearch-py", "opentelemetry": "opentelemetry-api", "yaml": "pyyaml"}
# Parts of another package, and what only Databricks has.
PARTS = {"pydantic_core": "pydantic", "dbutils": "pyspark"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


def imported() -> set[str]:
    """The distributions that the modules of the package import, at their top, in functions and for type checkers."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            found |= {node.module} if isinstance(node, ast.ImportFrom) and node.module else set()
    roots = {name.partition(".")[0] for name in found} - {*sys.stdlib_module_names, "icecdc_core"}
    return {DISTRIBUTIONS.get(name, PARTS.get(name, name)).replace("_", "-").lower() for name in roots}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the package, so that nothing is written into the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    sources.mkdir()
    for name in ("icecdc_core", "demo", "tests", "pyproject.toml", "README.md", "LICENSE"):
        (sources / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(sources)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


class DescribeTheWheel:
    @pytest.mark.long
    def it_has_every_file_of_the_package_and_no_other(self, wheel: Path):
        with zipfile.ZipFile(wheel) as archive:
            found = {name for name in archive.namelist() if ".dist-info/" not in name}
        wanted = {".py", ".java", ".json", ".typed"}
        files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        assert {path.name for path in files if path.suffix not in wanted} - {"py.typed"} == set()
        assert found == {path.relative_to(ROOT).as_posix() for path in files}


class DescribeTheDependencies:
    def it_declares_what_modules_import_or_has_an_extra_for_it(self):
        extras = set().union(*(names(EXTRAS[extra]) for extra in EXTRAS if extra not in ("dev", "docs")))
        assert imported() - names(PROJECT["dependencies"]) - extras == set()

    def it_declares_nothing_that_no_module_needs(self):
        assert names(PROJECT["dependencies"]) & {"pyspark", "py4j"} == set()  # they are the cluster's
        # pyiceberg's extras, and what PySpark hands rows to Python with.
        assert names(PROJECT["dependencies"]) - imported() == set()
