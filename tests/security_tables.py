"""The tables of SECURITY.md that say which requests icecdc makes."""

import re
from collections.abc import Mapping
from pathlib import Path


def allowed_requests(section: str, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The rules between two marks of SECURITY.md as (method, pattern), placeholders replaced by names."""
    text = (Path(__file__).parents[1] / "SECURITY.md").read_text(encoding="utf-8")
    table = text.split(f"<!-- {section}: begin -->")[1].split(f"<!-- {section}: end -->")[0]
    rules = []
    for method, path in re.findall(r"^\| `(\w+) (/\S*)` \|", table, re.MULTILINE):
        for placeholder, value in names.items():
            path = path.replace(placeholder, value)
        rules.append((method, path))
    return rules
