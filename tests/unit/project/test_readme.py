"""The README says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import icecdc_core
from icecdc_core.config import SyncConfig

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def parameter_table() -> str:
    """The parameters as the README's table; print it to renew the README."""
    rows = ["| Parameter | Default | Meaning |", "|---|---|---|"]
    for parameter in SyncConfig.parameters():
        default = "required" if parameter.name == "table" else f"`{parameter.default}`"
        shown = "" if default in ("``", "`{}`", "`[]`") else default
        rows.append(f"| `{parameter.name}` | {shown} | {parameter.help.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def it_lists_every_parameter_as_the_code_has_it():
    listed = README.split("<!-- parameters: begin -->")[1].split("<!-- parameters: end -->")[0]
    assert listed.strip() == parameter_table()


def it_names_every_module():
    modules = {path.stem for path in Path(icecdc_core.__file__).parent.glob("*.py")} - {"__init__"}
    named = set(re.findall(r"`(\w+)`", README.split("## How it is built")[1]))
    # Helpers of one module are spoken of with it.
    assert modules - named <= {"columns", "runs", "config_problems", "demo_day", "demo_results"}


def it_links_only_to_files_that_exist():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []


def it_shows_the_two_commands():
    assert [command for command in ("make demo", "make test") if command not in README] == []
