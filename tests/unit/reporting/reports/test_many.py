"""The summary of many indexes: the worst state, and a row for each."""

import json

from icecdc_core.errors import ConfigError
from icecdc_core.jobs.setup import SetupReport
from icecdc_core.reporting.exit_states import EXIT_STATES
from icecdc_core.reporting.reports import WORST_FIRST, ManyReport, RunReport

DONE = RunReport("sync", "lake.ns.t", "t", strategy="diff", upserts=1200, deletes=3, seconds=1.25)


def failed(state):
    return {"state": state, "error": "SomeError", "message": "It broke\nin two. Remedy: correct it", "seconds": 0.5}


def it_has_the_worst_state_of_all():
    assert sorted(WORST_FIRST) == sorted(EXIT_STATES)
    for *states, worst in (["ok"], ["locked"] * 2, ["retry", "config", "config"], ["data", "failed", "failed"]):
        found = {f"t{n}": failed(state) for n, state in enumerate(states)}
        assert ManyReport({"good": DONE, **found}).state == worst


def it_has_the_report_of_each_index():
    shown = json.loads(ManyReport({"t": DONE, "u": failed("retry")}, 2.5).to_json())
    assert (shown["state"], shown["seconds"], shown["indexes"]["t"]["upserts"]) == ("retry", 2.5, 1200)
    assert (list(shown["indexes"]), shown["indexes"]["u"]["error"]) == (["t", "u"], "SomeError")


def it_shows_each_problem_of_a_setup_with_its_remedy():
    errors = [ConfigError(text, subject="index", value=text, remedy=f"correct {text}") for text in ("one", "two")]
    report = SetupReport(False, "lake.ns.t", "t", problems=list(map(str, errors)), errors=errors)
    text = ManyReport({"t": report}, 2.5).text()
    assert "NOT ready: 2 problems " in text
    assert [line for line in text.splitlines() if "Remedy: correct" in line] == [
        f"t: {each}" for each in report.problems
    ]
