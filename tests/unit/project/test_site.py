"""The documentation site: every page is in its navigation, every link leads somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]


def module(path: str):
    """A Python file that is in no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def pages(nav: object) -> set[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        return {nav}
    nested = nav.values() if isinstance(nav, dict) else nav
    return set().union(*(pages(each) for each in nested))


class Settings(yaml.SafeLoader):
    """Reads mkdocs.yml, which names Python functions."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    return folder


def it_has_every_page_in_its_navigation():
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Settings)
    written = {path.name for path in (ROOT / "docs").glob("*.md")}
    added = set(module(".ci/docs_hooks.py").PAGES.values())
    assert (written | added) ^ pages(settings["nav"]) == set(), "add the page to nav in mkdocs.yml"


def it_is_built_without_a_warning_and_every_link_leads_somewhere(site):
    assert (site / "index.html").exists()


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


def it_has_no_mermaid_because_its_script_comes_from_elsewhere(site):
    assert [page.name for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text(encoding="utf-8")] == []


def it_publishes_the_sources_that_pages_link_to(site):
    assert "MODULE Protocol" in (site / "source" / "tests" / "model" / "Protocol.tla.txt").read_text(encoding="utf-8")


FIGURES = module("docs/images/draw.py").FIGURES


@pytest.mark.parametrize("name", FIGURES)
def it_shows_the_figures_as_the_script_draws_them(name):
    expected = FIGURES[name]().svg()
    if os.environ.get("ICECDC_UPDATE_DOCS"):
        (ROOT / "docs" / "images" / name).write_text(expected, encoding="utf-8")
    assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == expected
