"""What `make dist` builds: the package and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "icecdc_core"


@pytest.mark.long
def it_has_every_file_of_the_package_and_no_other(tmp_path):
    sources = tmp_path / "sources"  # so that nothing is written into the repository
    sources.mkdir()
    for name in ("icecdc_core", "demo", "tests", "pyproject.toml", "README.md", "LICENSE"):
        (sources / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(sources)]
    subprocess.run(command, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path.suffix for path in files} <= {".py", ".java", ".json", ".typed"}
    assert found == {path.relative_to(ROOT).as_posix() for path in files}
