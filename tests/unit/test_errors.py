"""Errors name the value found and the remedy, and cross process borders."""

import pickle
import re

from icecdc_core.errors import CARD, ConfigError, IcecdcError, TableNotFoundError

MISSING = TableNotFoundError("No such table", subject="table", value="a.b.c", remedy="create it")


def it_reads_as_prose():
    for error, expected in (
        (IcecdcError("No such table"), "No such table."),
        (IcecdcError("No such table", subject="table"), "No such table [table]."),
        (MISSING, "No such table [table='a.b.c']. Remedy: create it"),
        (pickle.loads(pickle.dumps(MISSING)), str(MISSING)),
        (ConfigError("2 are wrong", problems=["a: bad.", "b: worse."]), "2 are wrong:\n- a: bad.\n- b: worse."),
    ):
        assert str(error) == expected
    text = str(IcecdcError("It was refused", subject="row_filter", value="x" * 200_000))
    assert (len(text) < 2200, "(200,002 characters)" in text) == (True, True)
    error = ConfigError("Not a condition", subject="row_filter", value="1 +", remedy="correct it")
    assert error.problems == [str(error)] == ["Not a condition [row_filter='1 +']. Remedy: correct it"]


def it_shows_in_a_notebook_what_is_wrong_and_once_the_card_of_its_run_instead_of_a_traceback(monkeypatch):
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in MISSING._render_traceback_()]
    assert lines == ["TableNotFoundError", "No such table [table='a.b.c'].", "What to do: create it"]
    error, shown = TableNotFoundError("No such table"), []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data["text/html"]))
    setattr(error, CARD, "<b>the card</b>")
    assert error._render_traceback_() == error._render_traceback_()
    assert shown == ["<b>the card</b>"]
