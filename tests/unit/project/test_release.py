"""What stands between a tag and a release."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
CHANGELOG = """# Changelog

## [Unreleased]

- what comes next

## [0.2.0] - 2026-12-01

- what is new

## [0.1.0] - 2026-11-24

- what was new, see [proof](docs/proof.md#traces)
"""


@pytest.fixture
def notes(tmp_path: Path):
    """Run the script in a copy of the repository with a version and a changelog."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release-notes", tmp_path / ".ci")

    def run(version: str, *tag: str) -> tuple[int, str]:
        (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
        (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
        ended = subprocess.run([tmp_path / ".ci" / "release-notes", *tag], capture_output=True, text=True, check=False)
        return ended.returncode, (ended.stdout + ended.stderr).strip()

    return run


class DescribeTheReleaseNotes:
    @pytest.mark.parametrize(
        ("version", "tag", "expected"),
        [
            ("0.2.0", ["v0.2.0"], (0, "- what is new")),
            ("0.1.0", ["v0.1.0"], (0, "- what was new, see `docs/proof.md`")),
            ("0.3.0", [], (0, "- what comes next")),
        ],
    )
    def it_is_the_section_of_the_version(self, notes, version, tag, expected):
        assert notes(version, *tag) == expected

    @pytest.mark.parametrize(
        ("version", "tag", "words"),
        [("0.2.0", "v0.2.1", "is not v0.2.0"), ("0.3.0", "v0.3.0", "has no section [0.3.0]")],
    )
    def it_refuses_a_tag_that_is_not_ready(self, notes, version, tag, words):
        code, text = notes(version, tag)
        assert (code, words in text, "Remedy: " in text) == (1, True, True)


class DescribeTheWorkflows:
    @pytest.mark.parametrize("name", WORKFLOWS)
    def it_uses_actions_of_others_in_one_version(self, name):
        used = [step["uses"] for job in WORKFLOWS[name]["jobs"].values() for step in job["steps"] if "uses" in step]
        moving = [each for each in used if not re.search(r"@(v\d+(\.\d+){2}|[0-9a-f]{40})$", each)]
        assert [
            each for each in moving if not re.fullmatch(r"actions/[a-z/-]+@v\d+|\./\.github/actions/setup", each)
        ] == []

    def it_runs_no_package_in_a_job_that_gets_a_secret(self):
        jobs = WORKFLOWS["nightly.yml"]["jobs"]
        trusted = [job["steps"] for job in jobs.values() if "secrets." in str(job)]
        assert [[step["uses"].split("@")[0] for step in steps if "uses" in step] for steps in trusted] == [
            ["actions/checkout", "databricks/setup-cli"]
        ]
        assert all("make" not in step.get("run", "") for steps in trusted for step in steps)

    def it_gives_each_job_of_a_release_the_permissions_that_it_needs_and_no_other(self):
        jobs = WORKFLOWS["release.yml"]["jobs"]
        assert WORKFLOWS["release.yml"]["permissions"] == {"contents": "read"}
        assert {
            name: {scope for scope, access in job["permissions"].items() if access == "write"}
            for name, job in jobs.items()
        } == {
            "test": set(),
            "build": set(),
            "sign": {"id-token", "attestations"},
            "pypi": {"id-token"},
            "github": {"contents"},
        }

    def it_publishes_only_what_was_tested_signed_and_approved(self):
        jobs = WORKFLOWS["release.yml"]["jobs"]
        assert {name: job.get("needs") for name, job in jobs.items()} == {
            **{"test": None, "build": None, "sign": ["test", "build"], "pypi": "sign", "github": "pypi"},
        }
        assert jobs["pypi"]["environment"] == "pypi"
        tested = [step.get("run") for step in jobs["test"]["steps"]]
        assert {".ci/run", "make dist && .ci/check-release", '.ci/release-notes "$GITHUB_REF_NAME"'} <= set(tested)

    def it_runs_nothing_but_pinned_actions_where_it_may_sign(self):
        steps = WORKFLOWS["release.yml"]["jobs"]["sign"]["steps"]
        assert [re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]) is not None for step in steps] == [True] * 4
