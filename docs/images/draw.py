"""Draws the figures of the documents as SVG, in colours for light and dark pages: python docs/images/draw.py."""

from __future__ import annotations

from html import escape
from pathlib import Path

STYLE = """
  .page{fill:#fff} text{fill:#1f2430;font:15px system-ui,sans-serif}
  .mono{font:14px ui-monospace,Menlo,Consolas,monospace}
  .small{font-size:13px;fill:#5a6172} .head{font-weight:600} .gone{fill:#9aa1b1;text-decoration:line-through}
  .box{fill:#f3f5fb;stroke:#b9c0d4} .spark{fill:#fff3e2;stroke:#e0b070} .store{fill:#e6f1ff;stroke:#86aee0}
  .good{fill:#e4f6e8;stroke:#7fc28f} .bad{fill:#fdeaea;stroke:#e09a9a}
  .old{fill:#b3261e;text-decoration:line-through} .new{fill:#0b6b34;font-weight:600}
  .figure{font-size:22px;font-weight:600}
  .line{stroke:#5a6172;stroke-width:1.6;fill:none} .dash{stroke-dasharray:5 4} .tip{fill:#5a6172}
  @media (prefers-color-scheme:dark){
    .page{fill:#1e2129} text{fill:#e6e8ef} .small{fill:#a9b0c2} .gone{fill:#747c90}
    .box{fill:#2a2f3b;stroke:#525a6e} .spark{fill:#40331f;stroke:#a67c42} .store{fill:#1f3450;stroke:#4f7db5}
    .good{fill:#1f3d29;stroke:#4f9a62} .bad{fill:#46272a;stroke:#a85c60} .line{stroke:#a9b0c2} .tip{fill:#a9b0c2}
    .old{fill:#ff9c94} .new{fill:#7ddb9b}
  }
"""


class Figure:
    """A drawing of boxes, rows and arrows.

    Args:
        width: In pixels.
        height: In pixels.
        title: What it shows, for those who cannot see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">\n'
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>\n'
            f'<rect class="page" width="{width}" height="{height}" rx="8"/>'
        )
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> Figure:
        """Write a line of text."""
        shown = escape(text).replace("  ", "\u00a0\u00a0")
        self._parts.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{shown}</text>')
        return self

    def box(self, x: float, y: float, width: float, height: float, lines: str, kind: str = "box") -> Figure:
        """Draw a box with centred lines of text; the lines after the first are small."""
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        listed = lines.split("\n")
        for number, line in enumerate(listed):
            middle = y + height / 2 + 5 + (number - (len(listed) - 1) / 2) * 19
            self.text(x + width / 2, middle, line, "small" if number else "", "middle")
        return self

    def rows(self, x: float, y: float, width: float, head: str, rows: list[str], kind: str = "box") -> Figure:
        """Draw a box with a heading and rows in monospace; rows that begin with ~ are crossed out."""
        self._parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{36 + 23 * len(rows)}" rx="6"/>'
        )
        self.text(x + 12, y + 22, head, "head")
        for number, row in enumerate(rows):
            self.text(x + 12, y + 46 + 23 * number, row.lstrip("~"), "mono gone" if row.startswith("~") else "mono")
        return self

    def line(self, path: str) -> Figure:
        """Draw a line along a path."""
        self._parts.append(f'<path class="line" d="{path}"/>')
        return self

    def arrow(self, path: str, dashed: bool = False) -> Figure:
        """Draw an arrow along a path."""
        self._parts.append(f'<path class="line{" dash" if dashed else ""}" marker-end="url(#tip)" d="{path}"/>')
        return self

    def svg(self) -> str:
        """The drawing."""
        return "\n".join([self._head, *self._parts, "</svg>"]) + "\n"


# Rows and counts of `make demo`, as its page 50_explore.html and its reports show them. "a > b": b replaced a.
HEADINGS = ("change", "flight", "origin", "dep_delay", "arr_delay")
CHANGED = (
    ("update", "EV 5747, 7 July", "LGA", "81 > 66", "67 > 52"),
    ("update", "B6 461, 7 July", "LGA", "130 > 115", "116 > 101"),
    ("update", "UA 571, 8 February", "LGA > EWR", "4", "-9"),
    ("update", "B6 318, 31 December", "JFK", "21", "30 > 31"),
    ("insert", "UA 274, 1 January", "EWR", "-2", "25"),
    ("delete", "B6 125, 1 January", "JFK", "null", "null"),
)
COUNTS = (
    ("2,183,489", "rows in the files\nof six commits", "box"),
    ("10,806", "rows really\nchanged", "spark"),
    ("11,206", "documents written,\nmoved or deleted", "store"),
    ("0", "of 329,589 rows\ndiffer from the index", "good"),
)


def sync() -> Figure:
    """What a sync found and wrote."""
    figure = Figure(680, 384, "Changed rows of a table, before and after, and how many documents a sync wrote for them")
    places = (20, 104, 304, 434, 564)
    for x, heading in zip(places, HEADINGS, strict=True):
        figure.text(x, 34, heading, "head")
    figure.line("M20 48H660")
    for number, (change, *cells) in enumerate(CHANGED):
        y, kind = 74 + 28 * number, {"insert": "new", "delete": "old"}.get(change, "")
        figure.text(20, y, change, f"mono {kind}".strip())
        for x, cell in zip(places[1:], cells, strict=True):
            before, _, after = cell.partition(" > ")
            figure.text(x, y, before, f"mono {'old' if after else kind}".strip())
            figure.text(x + 8.5 * len(before) + 10, y, after, "mono new")
    for number, (count, what, kind) in enumerate(COUNTS):
        x = 20 + 164 * number
        figure.box(x, 252, 148, 108, "", kind).text(x + 74, 292, count, "figure", "middle")
        for line, words in enumerate(what.split("\n")):
            figure.text(x + 74, 318 + 19 * line, words, "small", "middle")
        if number:
            figure.arrow(f"M{x - 15} 306h13")
    return figure


def data_flow() -> Figure:
    """From a table to an index."""
    figure = Figure(960, 300, "From an Iceberg table through Spark to an OpenSearch index")
    figure.box(20, 40, 130, 70, "Iceberg table\nsnapshots", "store")
    stages = ["plan\nfiles that differ", "changes\nDELETE, INSERT", "shuffle\nby identifier"]
    stages += ["carryover\ndrop unchanged", "updates\none action each"]
    for number, stage in enumerate(stages):
        figure.box(190 + 152 * number, 40, 128, 70, stage, "spark")
        figure.arrow(f"M{150 if number == 0 else 166 + 152 * number} 75h{38 if number == 0 else 22}")
    figure.arrow("M862 110v48")
    figure.box(798, 160, 128, 62, "documents\nid, version, JSON", "spark")
    figure.arrow("M798 191h-22")
    figure.box(646, 160, 128, 62, "write\n_bulk, executors", "spark")
    figure.arrow("M646 191h-22")
    figure.box(494, 160, 128, 62, "commit\nmove the position", "spark")
    figure.arrow("M710 222v38h-18")
    figure.box(494, 238, 196, 46, "index behind an alias", "store")
    figure.arrow("M494 191h-80")
    figure.box(190, 160, 222, 62, "position and commit log\nin the same cluster", "store")
    figure.arrow("M254 160v-48", dashed=True)
    return figure.text(264, 140, "from", "small")


def carryover() -> Figure:
    """A copy-on-write update of one row."""
    figure = Figure(960, 270, "An update rewrites a file of three rows; two of them cancel, one document is written")
    figure.rows(20, 70, 190, "file A, snapshot 1", ["1  open", "2  open", "3  paid"], "store")
    figure.arrow("M210 122h28")
    figure.rows(240, 70, 190, "file B, snapshot 2", ["1  open", "2  paid", "3  paid"], "store")
    figure.text(20, 40, "UPDATE orders SET status = 'paid' WHERE id = 2", "mono")
    figure.text(20, 205, "The update replaces file A by file B.", "small")
    figure.arrow("M430 122h38")
    changes = [
        "~DELETE 1  open",
        "~INSERT 1  open",
        "DELETE 2  open",
        "INSERT 2  paid",
        "~DELETE 3  paid",
        "~INSERT 3  paid",
    ]
    figure.rows(470, 40, 208, "changes, by identifier", changes, "spark")
    figure.text(470, 238, "Equal pairs are carryovers: they cancel.", "small")
    figure.arrow("M678 122h30")
    return figure.rows(710, 86, 230, "one bulk operation", ["index 2  paid"], "good")


def partition_move() -> Figure:
    """An update that moves a row to another partition."""
    figure = Figure(960, 330, "A row moves from partition EU to US; both change rows meet in one task")
    figure.text(20, 36, "UPDATE orders SET region = 'US' WHERE id = 1    -- PARTITIONED BY (region)", "mono")
    figure.rows(20, 60, 130, "EU, before", ["1  EU", "2  EU"], "store")
    figure.rows(190, 60, 130, "EU, after", ["2  EU"], "store")
    figure.rows(20, 190, 130, "US, before", ["3  US"], "store")
    figure.rows(190, 190, 130, "US, after", ["3  US", "1  US"], "store")
    figure.arrow("M150 95h38").arrow("M150 225h38")
    figure.rows(370, 60, 160, "task A reads EU", ["DELETE 1  EU"], "spark")
    figure.rows(370, 190, 160, "task B reads US", ["INSERT 1  US"], "spark")
    figure.arrow("M320 90h48").arrow("M320 220h48")
    figure.arrow("M530 90c50 0 20 60 68 60").arrow("M530 220c50 0 20 -60 68 -60")
    figure.rows(600, 113, 150, "shuffle by id", ["DELETE 1  EU", "INSERT 1  US"], "spark")
    figure.arrow("M750 154h36")
    figure.rows(788, 125, 152, "INSERT wins", ["index 1  US"], "good")
    figure.text(
        20, 312, "The shuffle brings both change rows to one task, so one operation is sent instead of two.", "small"
    )
    return figure


def versions() -> Figure:
    """Versions of one document over three batches."""
    figure = Figure(960, 240, "Versions of document 7: an old request that comes late is refused")
    figure.arrow("M20 130h920")
    events = [
        (20, "batch 5: upsert\nversion 2·5+1 = 11", "good"),
        (207, "batch 6: delete\nversion 2·6 = 12", "good"),
        (394, "batch 5, late\nversion 11", "bad"),
        (581, "batch 6, repeated\nversion 12", "bad"),
        (768, "batch 7: upsert\nversion 2·7+1 = 15", "good"),
    ]
    results = ["document, 11", "tombstone, 12", "409, the same", "409, the same", "document, 15"]
    for (x, lines, kind), result in zip(events, results, strict=True):
        figure.box(x, 50, 160, 58, lines, kind)
        figure.text(x + 80, 184, result, "mono", "middle")
    figure.text(20, 30, "What is sent for document 7", "head").text(20, 160, "What the index has then", "head")
    figure.text(
        20,
        222,
        "OpenSearch keeps the version of a deleted document, its tombstone, for index.gc_deletes (1 hour).",
        "small",
    )
    return figure


def position() -> Figure:
    """A position and the range of a batch."""
    figure = Figure(960, 240, "A position names a snapshot of the table; a commit moves it to the end of the range")
    figure.text(20, 36, "snapshots of lake.shop.orders", "head")
    figure.arrow("M20 90h900")
    for number in range(1, 6):
        kind = "good" if number == 2 else "store" if number == 5 else "box"
        figure.box(20 + 180 * (number - 1), 66, 120, 48, f"s{number}" + ("\nin the index" if number == 2 else ""), kind)
    figure.text(800, 132, "current", "small", "middle")
    figure.text(260, 132, "from (exclusive)", "small", "middle")
    figure.rows(160, 160, 300, "position, before", ["lake.shop.orders: s2"], "good")
    figure.rows(620, 160, 300, "position, after the commit", ["lake.shop.orders: s5"], "good")
    figure.arrow("M460 190h158")
    figure.text(539, 180, "begin, write, commit", "small", "middle")
    return figure


FIGURES = {
    "sync.svg": sync,
    "data-flow.svg": data_flow,
    "carryover.svg": carryover,
    "partition-move.svg": partition_move,
    "versions.svg": versions,
    "position.svg": position,
}
"""The figure of each file."""

if __name__ == "__main__":
    for name, draw in FIGURES.items():
        (Path(__file__).parent / name).write_text(draw().svg(), encoding="utf-8")
