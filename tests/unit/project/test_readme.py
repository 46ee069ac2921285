"""The README says what the code says, and every document links to what exists."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from icecdc_core.cli import COMMANDS, SERVICES
from icecdc_core.config import SyncConfig
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.ingest import IngestConfig
from icecdc_core.notebook import INDEX_FILE
from icecdc_core.session.jars import ICEBERG_RUNTIMES
from icecdc_core.session.java import SPARK_MAXIMUM, SPARK_MINIMUM

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("*/*.md"))]
DOCUMENTS = [path for path in DOCUMENTS if not path.parts[len(ROOT.parts)].startswith((".", "build"))]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in DOCUMENTS}


def blocks(language: str) -> list:
    """The fenced blocks of a language in all documents, as parameters of a test."""
    found = [
        (name, block)
        for name, text in TEXTS.items()
        for block in re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]
    return [pytest.param(block, id=f"{name}-{number}") for number, (name, block) in enumerate(found)]


def imported(tree: ast.Module) -> dict[str, object]:
    """What the imports of a snippet bind; raises where one does not resolve."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            names |= {alias.asname or alias.name: getattr(module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: importlib.import_module(alias.name) for alias in node.names}
    return names


def slugs(text: str) -> set[str]:
    """The anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class DescribePythonSnippets:
    @pytest.mark.parametrize("snippet", blocks("python"))
    def it_compiles_and_its_imports_resolve(self, snippet):
        assert [name for name, value in imported(ast.parse(snippet)).items() if value is None] == []

    @pytest.mark.parametrize("snippet", blocks("python"))
    def it_calls_what_it_imports_with_arguments_that_exist(self, snippet):
        tree = ast.parse(snippet)
        names = {"SyncConfig": SyncConfig, "IngestConfig": IngestConfig, **imported(tree)}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        for call in calls:
            called = names.get(call.func.id)
            if inspect.isfunction(called):
                inspect.signature(called).bind(*call.args, **{each.arg: each.value for each in call.keywords})

    @pytest.mark.parametrize("snippet", blocks("python"))
    def it_shows_parameters_that_are_valid(self, snippet):
        kinds = {"SyncConfig": SyncConfig, "IngestConfig": IngestConfig}
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
                given = {each.arg: ast.literal_eval(each.value) for each in node.keywords}
                assert kinds[node.func.id](**given).table == given["table"]


class DescribeCommands:
    @pytest.mark.parametrize("name", TEXTS)
    def it_names_options_that_exist(self, name):
        kinds = {"ingest": IngestConfig}
        wrong = []
        calls = r"(?:python -m icecdc_core|^(?:\$ )?icecdc(?= \w+ --)|`icecdc) (\w+)((?:\\\n|[^\n`])*)"
        for job, options in re.findall(calls, TEXTS[name], re.MULTILINE):
            known = {each.name.replace("_", "-") for each in kinds.get(job, SyncConfig).parameters()}
            known |= {"file", "only", "parallel", "json", "verbose", "help", "remove-data", "kafka"}
            wrong += [] if job in {*COMMANDS, SERVICES} else [job]
            wrong += [option for option in re.findall(r"--([\w-]+)", options) if option not in known]
        for options in re.findall(r"papermill ((?:\\\n|[^\n`])*)", TEXTS[name]):
            kind = ExploreConfig if "50_explore" in options else SyncConfig
            known = {each.name for each in kind.parameters()} | {INDEX_FILE}
            wrong += [option for option in re.findall(r"-p (\w+)", options) if option not in known]
        assert wrong == []

    @pytest.mark.parametrize("name", TEXTS)
    def it_names_targets_of_make_that_exist(self, name):
        targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        assert set(re.findall(r"^(?:\$ )?make ([a-z0-9-]+)|`make ([a-z0-9-]+)", TEXTS[name], re.MULTILINE)) <= {
            pair for target in targets for pair in ((target, ""), ("", target))
        }

    def it_shows_the_two_commands(self):
        assert [command for command in ("make demo", "make test") if command not in README] == []


class DescribeLinks:
    @pytest.mark.parametrize("name", TEXTS)
    def it_leads_to_files_and_headings_that_exist(self, name):
        folder = (ROOT / name).parent
        wrong = []
        for link in re.findall(r"\]\(([^)\s]+)\)", TEXTS[name]):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = folder / path if path else ROOT / name
            if not target.exists() or (anchor and anchor not in slugs(target.read_text(encoding="utf-8"))):
                wrong.append(link)
        assert wrong == []

    @pytest.mark.parametrize("name", TEXTS)
    def it_defines_every_reference(self, name):
        used = set(re.findall(r"\]\[([\w-]+)\]", TEXTS[name]))
        assert used == set(re.findall(r"^\[([\w-]+)\]: https://", TEXTS[name], re.MULTILINE)) & used


class DescribeSupportedVersions:
    def it_names_the_pairs_of_spark_and_iceberg(self):
        pairs = re.search(r"\| Spark with Iceberg \| ([^|]+) \|", README)[1].strip()
        expected = [f"{spark} with {iceberg}" for spark, iceberg in sorted(ICEBERG_RUNTIMES.items(), reverse=True)]
        assert pairs == ", ".join(expected)

    def it_names_the_versions_of_java(self):
        assert f"| Java | {SPARK_MINIMUM} to {SPARK_MAXIMUM} |" in README


def it_is_short():
    assert len(README.splitlines()) <= 190
