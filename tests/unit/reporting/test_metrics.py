"""Metrics as Prometheus reads them, and their documentation."""

import pytest

from icecdc_core.opensearch.counts import COUNTERS
from icecdc_core.reporting.metrics import RunMetrics
from tests.metric_samples import samples_of, text_of

FACTS = {"job": "sync", "table": "lake.ns.t", "index": "t", "state": "ok", "seconds": 2.5}
LABELS = {"job": "sync", "table": "lake.ns.t", "index": "t"}


class DescribeRunMetrics:
    def it_counts_documents_by_result(self):
        found = samples_of(RunMetrics({**FACTS, "upserts": 3, "rejected": 1}, 100.0))
        key = "icecdc_documents"
        assert (found[key, 'result="upserts"'], found[key, 'result="rejected"']) == (3, 1)

    def it_has_every_counter(self):
        counted = RunMetrics({**FACTS, **{name: 7_000 + at for at, name in enumerate(COUNTERS)}}, 100.0)
        assert {7_000.0 + at for at in range(len(COUNTERS))} <= set(samples_of(counted).values())

    def it_says_how_the_run_ended(self):
        found = samples_of(RunMetrics({**FACTS, "state": "retry"}, 100.0))
        ended = [found["icecdc_run_success", ""], found["icecdc_run_state", 'state="retry"']]
        assert (ended, ("icecdc_success_timestamp_seconds", "") in found) == ([0, 1], False)

    def it_says_nothing_else_of_a_run_that_found_the_index_locked(self):
        found = samples_of(RunMetrics({**FACTS, "state": "locked", "upserts": 0, "lag_seconds": 9}, 100.0))
        assert ({name for name, _ in found}, sum(found.values())) == ({"icecdc_run_state"}, 1)

    @pytest.mark.parametrize(("state", "dry_run", "at_end"), [("ok", False, 0), ("retry", False, 4), ("ok", True, 4)])
    def it_has_the_lag_before_and_after(self, state, dry_run, at_end):
        found = samples_of(RunMetrics({**FACTS, "state": state, "dry_run": dry_run, "lag_snapshots": 4}, 100.0))
        assert (found["icecdc_lag_snapshots", 'at="start"'], found["icecdc_lag_snapshots", 'at="end"']) == (4, at_end)

    def it_escapes_labels_and_repeats_the_job_in_one_that_no_scrape_overwrites(self):
        text = text_of(RunMetrics({**FACTS, "table": 'lake."a\\b"\n.t'}, 100.0))
        assert r'table="lake.\"a\\b\"\n.t"' in text
        assert text.count('{icecdc_job="sync",index="t",job="sync"') == text.count("table=")

    def it_has_no_sample_of_what_is_not_known_while_a_run_goes_on(self):
        facts = {"target_lag": 10.0, "lag_achieved": None, "target_lag_kept": 60.0, "complete_through": 99.5}
        assert samples_of(RunMetrics({**LABELS, **facts, "tables": {}})) == {
            ("icecdc_target_lag_seconds", ""): 10,
            ("icecdc_target_lag_kept_seconds", ""): 60,
            ("icecdc_ingest_complete_through_timestamp_seconds", ""): 99.5,
        }
