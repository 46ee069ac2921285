"""The examples of docs/scheduling.md: each command is one of icecdc, and the page shows what the files say."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from icecdc_core.cli import parse

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "scheduling.md").read_text(encoding="utf-8")
FILES = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "examples").glob("icecdc*")}
# From "icecdc" to where the shell's command ends.
COMMAND = re.compile(r"\bicecdc (?:sync|validate) --[^>\n']*?(?= >>|'|`|$)", re.MULTILINE)


def commands():
    return [pytest.param(text, id=f"{n}") for n, text in enumerate(COMMAND.findall("\n".join([PAGE, *FILES.values()])))]


class DescribeTheExamples:
    @pytest.mark.parametrize("text", commands())
    def it_shows_commands_with_options_that_exist(self, text):
        request = parse(shlex.split(text.rstrip(", "))[1:])
        assert request.file in ("indexes.yml", "$ICECDC_FILE")

    def it_shows_the_lines_of_the_crontab(self):
        lines = [line for line in FILES["icecdc.cron"].splitlines() if line and line[0] in "*0123456789"]
        assert [line for line in lines if line not in PAGE] == []
        assert all(len(line.split(maxsplit=5)) == 6 for line in lines)

    @pytest.mark.parametrize("name", ["icecdc_airflow.py", "icecdc_dagster.py"])
    def it_has_a_sync_and_a_validation_whose_output_is_json(self, name):
        ast.parse(FILES[name])
        assert {"icecdc_sync", "icecdc_validate"} <= set(re.findall(r"\bicecdc_\w+", FILES[name]))
        assert "--json" in FILES[name]
