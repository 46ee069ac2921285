"""Errors name the value found and the remedy, and cross process borders."""

import re

from icecdc_core.errors import CARD, TableNotFoundError

MISSING = TableNotFoundError("No such table", subject="table", value="a.b.c", remedy="create it")


def it_shows_in_a_notebook_what_is_wrong_and_once_the_card_of_its_run_instead_of_a_traceback(monkeypatch):
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in MISSING._render_traceback_()]
    assert lines == ["TableNotFoundError", "No such table [table='a.b.c'].", "What to do: create it"]
    error, shown = TableNotFoundError("No such table"), []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data["text/html"]))
    setattr(error, CARD, "<b>the card</b>")
    assert error._render_traceback_() == error._render_traceback_()
    assert shown == ["<b>the card</b>"]
