"""docs/architecture.md names every package, in the order of the import contract."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import icecdc_core

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+?)/?`", TEXT.split("## Packages")[1].split("\n## ")[0])


def layers(contract: str) -> list[str]:
    """The layers of a contract in .importlinter, from top to bottom; modules side by side share one."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    return [line for line in parser[f"importlinter:contract:{contract}"]["layers"].split("\n") if line]


def ranks(contract: str, section: list[str]) -> list[int]:
    """The layer of each name that a section mentions for the first time."""
    places = {name.strip(): rank for rank, layer in enumerate(layers(contract)) for name in layer.split("|")}
    return [places[name] for name in dict.fromkeys(section) if name in places]


def it_names_every_package():
    package = Path(icecdc_core.__file__).parent
    folders = {path.parent.relative_to(package).as_posix() for path in package.rglob("__init__.py")} - {"."}
    assert folders - set(NAMED) == set()


def it_names_every_module_beside_the_packages():
    modules = {path.stem for path in Path(icecdc_core.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules - set(NAMED) == set()


def it_lists_the_packages_in_the_order_of_the_contract():
    listed = NAMED[: NAMED.index("errors") + 1]
    actual = ranks("rooms", listed)
    assert (actual, len(set(actual))) == (sorted(actual), len(layers("rooms")))


def it_lists_the_packages_of_the_ingest_in_the_order_of_the_contract():
    listed = [name.removeprefix("ingest/") for name in NAMED[NAMED.index("job") :]]
    actual = ranks("ingest", listed)
    assert (actual, len(set(actual))) == (sorted(actual), len(layers("ingest")))
