"""The fenced blocks of README.md and docs/, and which test runs each of them.

A comment right before a block says that something special is true of it:

    <!-- run by: tests/integration/project/test_doc_snippets.py::it_ingests_as_the_kafka_page_says -->
    <!-- not run: needs Docker -->

Without a comment, `test_doc_snippets.py` runs Python and SQL; commands can be parsed, and index files be loaded.
"""

import ast
import io
import re
import shlex
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from icecdc_core.__main__ import main
from icecdc_core.cli import COMMANDS, SERVICES, parse
from icecdc_core.errors import ConfigError

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:^<!-- (run by|not run): (.+?) -->\n)?^( *)(`{3,})([\w-]*)([^\n]*)\n(.*?)^\3\4$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    title: str
    text: str
    mark: str = ""
    says: str = ""

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(text: str, page: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(text):
        mark, says, indent, _, language, info, content = match.groups()
        title = re.search(r'title="([^"]+)"', info)
        content = re.sub(f"^{indent}", "", content, flags=re.MULTILINE)
        line = text.count("\n", 0, match.start(4)) + 1
        found.append(Block(page, line, language, title[1] if title else "", content, mark or "", says or ""))
    return found


def all_blocks() -> list[Block]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        block
        for path in pages
        for block in blocks_of(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    ]


def commands_of(block: Block) -> list[tuple[str, str]]:
    joined = block.text.replace("\\\n", " ")
    return [
        (command.strip(), output.strip("\n"))
        for command, output in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ ).*\n)*)", joined, re.MULTILINE)
    ]


def words_of(command: str) -> list[str]:
    words = shlex.split(command, comments=True)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    return words


def problems_of(command: str) -> list[str]:
    """What `make` or `icecdc` would say to a command that is wrong."""
    words = words_of(command)
    words = words[words[0] == "opentelemetry-instrument" :]
    program, rest = words[0].removeprefix(".venv/bin/"), words[1:]
    if program in ("python", "python3") and rest[:2] == ["-m", "icecdc_core"]:
        program, rest = "icecdc", rest[2:]
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return [f"make has no target {word}" for word in rest if "=" not in word and word not in targets]
    return _icecdc_problems(rest) if program == "icecdc" else []


def _icecdc_problems(words: list[str]) -> list[str]:
    if words[:1] == [SERVICES]:
        with redirect_stdout(io.StringIO()) as shown, suppress(SystemExit):
            main([*words[:2], "--help"], "icecdc")
        unknown = [word for word in words[2:] if word.partition("=")[0] not in shown.getvalue()]
        return [f"unknown: {shlex.join(words)}"] if unknown or not shown.getvalue() else []
    try:
        if {"--help", "--version"} & {*words}:
            return []
        request = parse(words)
        if not request.file:
            COMMANDS[request.command].kind(**request.parameters)
    except ConfigError as error:
        return error.problems
    return []


def exists(test: str) -> bool:
    path, *names = test.split("::")
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body if (ROOT / path).is_file() else []
    for name in names:
        found = (each for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == name)
        body = next((each.body for each in found), [])
    return bool(names and body)


def allowed_requests(section: str, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The rules between two marks of SECURITY.md as (method, pattern), placeholders replaced by names."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = text.split(f"<!-- {section}: begin -->")[1].split(f"<!-- {section}: end -->")[0]
    rules = []
    for method, path in re.findall(r"^\| `(\w+) (/\S*)` \|", table, re.MULTILINE):
        for placeholder, value in names.items():
            path = path.replace(placeholder, value)
        rules.append((method, path))
    return rules
