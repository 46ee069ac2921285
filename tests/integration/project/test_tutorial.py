"""docs/tutorial.md with the output that it shows, which test_doc_snippets.py does in seconds, and the demo."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doc_blocks import blocks_of, commands_of, words_of

ROOT = Path(__file__).parents[3]
PRINTED = "http://127.0.0.1:9200"
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PARTS = [each for each in blocks_of(PAGE.partition("\n## How to\n")[0], "docs/tutorial.md") if each.mark != "not run"]
FILES = {block.title: block.text for block in PARTS if block.title}
COMMANDS = [part for block in PARTS if not block.title for part in commands_of(block)]


def plain(output: str) -> object:
    """An output without what differs from run to run: seconds, the width of columns, the order of JSON's fields."""
    if output.startswith("{"):
        return json.loads(output)
    return re.sub(r"\d+\.\d\b", "N", re.sub(r"[ \t]+", " ", output)).strip()


@pytest.fixture
def installed(tmp_path):
    """The PATH of an empty environment with the wheel and what it needs."""
    sources, uv = tmp_path / "sources", [str(Path(sys.executable).with_name("uv")), "--quiet", "--no-config"]
    sources.mkdir()
    for name in ("icecdc_core", "pyproject.toml", "README.md", "LICENSE"):
        (sources / name).symlink_to(ROOT / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(sources)]
    subprocess.run(build, check=True, capture_output=True)
    wheel, folder = next(tmp_path.glob("*.whl")), tmp_path / "environment"
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder)], check=True)
    wanted = ["--python", str(folder / "bin" / "python"), f"icecdc[local] @ {wheel.as_uri()}"]
    subprocess.run([*uv, "pip", "install", *wanted], check=True)
    return f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.long
@pytest.mark.timeout(900)
def it_runs_from_the_wheel_in_an_empty_environment_and_an_empty_folder(installed, tmp_path):
    """As a reader does it: each command is a process, and the services are those that it starts."""
    work = tmp_path / "work"
    work.mkdir()
    others = ("ICECDC_", "PYSPARK_", "PYTHON", "SPARK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    environment, url, differences = {**kept, "XDG_STATE_HOME": str(tmp_path / "state"), "PATH": installed}, PRINTED, []

    def run(words):
        ended = subprocess.run(["/usr/bin/env", *words], cwd=work, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr[-3000:]
        return ended.stdout

    code = "import importlib.util as u; print([n for n in ('IPython', 'papermill') if u.find_spec(n)])"
    assert run(["python", "-c", code]) == "[]\n"
    try:
        for command, text in COMMANDS:
            actual = run([word.replace(PRINTED, url) for word in words_of(command)])
            if command == "icecdc services up":
                url = re.search(r"http://[\d.:]+", actual)[0]
                for name, content in FILES.items():
                    (work / name).write_text(content.replace(PRINTED, url), encoding="utf-8")
            elif text and plain(actual) != plain(text):
                differences.append((command, actual, text))
    finally:
        run(["icecdc", "services", "down", "--remove-data"])
    assert differences == []


@pytest.mark.long
@pytest.mark.timeout(1500)
def it_ends_with_commands_that_work_when_pasted(opensearch_url, tmp_path):
    """`make demo ARGS=--keep`."""
    command = [sys.executable, "-m", "demo", "--keep", "--output", str(tmp_path / "demo")]
    given = {**os.environ, "ICECDC_OPENSEARCH_URL": opensearch_url}
    ended = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "The airline is nested" in ended.stdout
    assert "from 1 of 3 shards" in ended.stdout
    assert "\n  San Francisco Intl\n" in ended.stdout  # found by its vector
    search, status, *_, page = ended.stdout.partition("Try it:\n")[2].strip().splitlines()
    assert "arr_delay" in Path(page).read_text(encoding="utf-8")
    pasted = [
        subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
        for line in (search, f"{status} --json")
    ]
    hits = json.loads(pasted[0].stdout)["hits"]["hits"]
    report = json.loads(pasted[1].stdout.splitlines()[-1])
    assert [hit["_source"]["arr_delay"] for hit in hits] == [1007]
    assert (report["state"], len(report["indexes"])) == ("ok", 5)
