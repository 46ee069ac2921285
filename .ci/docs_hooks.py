"""MkDocs hooks: pages from outside of docs/, pages made from the code, and links to files of the repository."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "data/README.md": "demo-data.md",
    "benchmarks/README.md": "running-benchmarks.md",
}
"""Documents outside of docs/ that are pages of the site, by the names that they have there."""

REFERENCE = {
    "icecdc_core/config/sync.py": "parameters.md",
    "icecdc_core/ingest/config.py": "parameters.md",
    "icecdc_core/cli.py": "commands.md",
    "icecdc_core/reporting/reports.py": "reports.md",
    "icecdc_core/jobs/plan.py": "reports.md",
    "icecdc_core/errors.py": "errors.md",
    "icecdc_core/reporting/metrics.py": "metrics.md",
}
"""Sources whose links lead to the page that is made of them: in the repository, the source has the same."""

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)((?:#[^)\s]*)?)\)")
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_NAME = re.compile(r"<code>[^<]+</code>")
_WORD_END = re.compile(r"(?<=[a-z][_=])|(?<=[a-z])(?=[A-Z])")


def on_config(config: Any) -> Any:
    """Show version and repository at the foot of every page; the theme's own link would ask GitHub for its stars."""
    config.site_url = PROJECT["urls"]["Documentation"]
    config.copyright = f"icecdc {PROJECT['version']}, Apache-2.0"
    config.extra["social"] = [{"icon": "fontawesome/brands/github", "link": PROJECT["urls"]["Repository"]}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the documents outside of docs/, and the files of the repository that pages link to."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    sys.path[:0] = [str(ROOT), str(ROOT / ".ci")]
    import reference_pages

    for name, page in reference_pages.PAGES.items():
        files.append(File.generated(config, name, content=page()))
    linked = {target for file in files.documentation_pages() for target in _linked(_origin(file.src_uri), file)}
    for target in sorted(linked):
        files.append(File.generated(config, _published(target), content=(ROOT / target).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    origin = _origin(page.file.src_uri)

    def rewritten(match: re.Match[str]) -> str:
        target = _target(origin, match[2])
        if target is None:
            return match[0]
        text, anchor = match[1], match[3]
        return text if (ROOT / target).is_dir() else f"[{text}]({_published(target)}{anchor})"

    if page.file.src_uri == "index.md":
        markdown = _with_version(markdown)
    pieces = re.split(f"({_CODE.pattern})", markdown, flags=_CODE.flags)
    return "".join(piece if piece.startswith("```") else _LINK.sub(rewritten, piece) for piece in pieces)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Let names in tables break between words, and write its column's heading into each cell: see site.css."""
    return _TABLE.sub(lambda match: _with_headings(_NAME.sub(_breakable, match[0])), html)


def _breakable(name: re.Match[str]) -> str:
    return _WORD_END.sub("<wbr>", name[0])


def _with_headings(table: str) -> str:
    headings = [_TAG.sub("", heading).strip() for heading in re.findall(r"<th[^>]*>(.*?)</th>", table, re.DOTALL)]
    rows = table.split("<tr>")
    for number, row in enumerate(rows):
        for heading in headings:
            row = row.replace("<td>", f'<td data-heading="{heading}">', 1)
        rows[number] = row
    return "<tr>".join(rows)


def _with_version(markdown: str) -> str:
    """The first page with its version and links below the title, in place of the badges, which come from elsewhere."""
    title, _, rest = re.sub(r"^\[!\[.*\n", "", markdown, flags=re.MULTILINE).partition("\n")
    links = [f"[{name}]({PROJECT['urls'][name]})" for name in ("Repository", "Issues")]
    version = " · ".join([f"Version {PROJECT['version']}", *links, "[Changelog](CHANGELOG.md)"])
    return "\n".join([title, "", version, rest])


def _origin(name: str) -> str:
    """The file of the repository that a page is made of."""
    return next((source for source, page in PAGES.items() if page == name), f"docs/{name}")


def _target(origin: str, link: str) -> str | None:
    """The file of the repository that a link leads to; None for a link to another site."""
    if "://" in link or link.startswith("mailto:"):
        return None
    return os.path.normpath(os.path.join(os.path.dirname(origin), link))


def _linked(origin: str, file: Any) -> set[str]:
    """The files outside of docs/ that a page links to, and that are no pages."""
    found = {_target(origin, link) for _, link, _ in _LINK.findall(_CODE.sub("", file.content_string))}
    outside = {each for each in found if each and each not in {*PAGES, *REFERENCE} and not each.startswith("docs/")}
    return {each for each in outside if (ROOT / each).is_file()}


def _published(target: str) -> str:
    """The name of a file of the repository in the site; sources get one that a browser shows as text."""
    if target in PAGES or target in REFERENCE:
        return PAGES.get(target) or REFERENCE[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"source/{target.replace('.', '', 1) if target.startswith('.') else target}.txt"  # MkDocs hides dot files
