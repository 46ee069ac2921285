"""docs/parameters.md lists every parameter as the code has it."""

from __future__ import annotations

import os
from pathlib import Path

from icecdc_core.config import SyncConfig

PAGE = Path(__file__).parents[3] / "docs" / "parameters.md"
BEGIN, END = "<!-- parameters: begin -->\n", "<!-- parameters: end -->"


def parameter_table() -> str:
    """The parameters of `SyncConfig` as a table in Markdown."""
    rows = ["| Parameter | Default | Meaning |", "|---|---|---|"]
    for parameter in SyncConfig.parameters():
        default = "required" if parameter.name == "table" else f"`{parameter.default}`"
        shown = "" if default in ("``", "`{}`", "`[]`") else default
        rows.append(f"| `{parameter.name}` | {shown} | {parameter.help.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def it_lists_every_parameter_as_the_code_has_it():
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    listed, after = rest.split(END)
    if os.environ.get("ICECDC_UPDATE_DOCS"):
        listed = f"{parameter_table()}\n"
        PAGE.write_text(f"{before}{BEGIN}{listed}{END}{after}", encoding="utf-8")
    assert listed.strip() == parameter_table()
