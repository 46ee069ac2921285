"""The summary of many indexes: the worst state, and a row for each."""

import json

import pytest

from icecdc_core.errors import ConfigError
from icecdc_core.jobs.setup import SetupReport
from icecdc_core.reporting.exit_states import EXIT_STATES
from icecdc_core.reporting.reports import WORST_FIRST, ManyReport, RunReport

DONE = RunReport("sync", "lake.ns.t", "t", strategy="diff", upserts=1200, deletes=3, seconds=1.25)


def failed(state):
    return {
        "state": state,
        "error": "SomeError",
        "message": "It broke\nin two lines. Remedy: correct it",
        "seconds": 0.5,
    }


class DescribeTheState:
    def it_knows_every_state(self):
        assert sorted(WORST_FIRST) == sorted(EXIT_STATES)

    @pytest.mark.parametrize(
        ("states", "worst"),
        [((), "ok"), (("locked",), "locked"), (("retry", "config"), "config"), (("data", "failed"), "failed")],
    )
    def it_is_the_worst(self, states, worst):
        found = {f"t{n}": failed(state) for n, state in enumerate(states)}
        assert ManyReport({"good": DONE, **found}).state == worst


class DescribeTheSummary:
    def it_has_the_report_of_each_index(self):
        shown = json.loads(ManyReport({"t": DONE, "u": failed("retry")}, 2.5).to_json())
        assert (shown["state"], shown["seconds"], shown["indexes"]["t"]["upserts"]) == ("retry", 2.5, 1200)
        assert (list(shown["indexes"]), shown["indexes"]["u"]["error"]) == (["t", "u"], "SomeError")

    def it_shows_each_problem_of_a_setup_with_its_remedy(self):
        errors = [ConfigError(text, subject="index", value=text, remedy=f"correct {text}") for text in ("one", "two")]
        reports = {
            f"t{count}": SetupReport(False, "lake.ns.t", "t", problems=[str(e) for e in errors[:count]], errors=errors)
            for count in (1, 2)
        }
        text = ManyReport(reports, 2.5).text()
        assert ("NOT ready: 1 problem " in text, "NOT ready: 2 problems " in text) == (True, True)
        found = [f"{name}: {problem}" for name, report in reports.items() for problem in report.problems]
        assert [line for line in text.splitlines() if line in found] == found
        assert all("Remedy: correct" in line for line in found)
