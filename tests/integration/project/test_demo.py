"""`make demo ARGS=--keep`: the commands that it ends with work as they are printed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.long
@pytest.mark.timeout(1500)
def it_ends_with_commands_that_work_when_pasted(opensearch_url, tmp_path):
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
