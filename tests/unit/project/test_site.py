"""The documentation site: every link leads somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    return folder


def it_has_every_file_that_a_page_links_to(site):
    links = {
        (page, href)
        for page in site.rglob("*.html")
        for href in re.findall(r'<a[^>]*\shref="?([^"\s>#?]+)', page.read_text(encoding="utf-8"))
        if ":" not in href
    }
    assert any(href.endswith("icecdc_airflow.py") for _, href in links)
    # The page for what is not found has links for the root of a server.
    dead = {(page.name, href) for page, href in links if not (page.parent / href).exists() and page.name != "404.html"}
    assert sorted(dead) == []


def it_loads_nothing_from_elsewhere(site):
    tag = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^\s\">]+")
    found = {match for page in site.rglob("*.html") for match in tag.findall(page.read_text(encoding="utf-8"))}
    assert sorted(found) == []
