"""Random lives of an index, recorded: whatever its runs did is a behaviour of the protocol, see docs/proof.md.

Runs are cut off at a request, or stall at one and go on when another run has finished. ICECDC_LIVES says how many,
ICECDC_SEED which; a failure names the event that the protocol does not allow.
"""

import os
import random
import threading
from contextlib import suppress

import pytest
from opensearchpy import OpenSearch

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.errors import IcecdcError
from tests.faults.tables import JOBS, KINDS, SEED, change_some, rows_as_documents
from tests.given.broken_runs import end_lease
from tests.model.recorder import recording
from tests.model.translation import translate
from tests.model.validation import validate
from tests.servers.loopback_proxy import cut_off, loopback_proxy

LIVES = int(os.environ.get("ICECDC_LIVES", "1"))
WRITES = ("PUT", "POST", "DELETE")


class Life:
    """What happens to one index: changes of its table, and jobs of which some end badly."""

    def __init__(self, spark, config, opensearch, url, rng):
        self.spark, self.config, self.opensearch, self.url, self.rng = spark, config, opensearch, url, rng

    def job(self, url):
        name = self.rng.choice(("export", "sync", "sync", "repair", "rollback"))
        if name == "repair":
            self.opensearch.index(index=self.config.index, id=f"foreign{self.rng.random()}", body={"id": -1})
        with suppress(IcecdcError):  # that is how runs end that are cut off or stalled
            JOBS[name](self.spark, self.config.replace(opensearch_url=url))

    def cut_off(self):
        """No request after the n-th write gets through."""
        trouble = cut_off(self.rng.randint(1, 14), self.rng.random() < 0.5, "PUT|POST|DELETE")
        with loopback_proxy(self.url, trouble=trouble) as proxy:
            self.job(proxy.url)

    def stalled(self):
        """One request arrives when another run has finished. The run that sent it looks dead until then."""
        place, seen, sent, others_ended = self.rng.randint(1, 14), [], threading.Event(), threading.Event()

        def gate(method, path, headers, body):
            seen.extend([path] if method in WRITES else [])
            if len(seen) == place and method in WRITES:
                sent.set()
                others_ended.wait(120)

        with loopback_proxy(self.url, gate=gate) as proxy:

            def run():
                self.job(proxy.url)
                sent.set()

            thread = threading.Thread(target=run)
            thread.start()
            assert sent.wait(120)
            if thread.is_alive():
                end_lease(self.opensearch, self.config)
                change_some(self.spark, self.config.table, self.rng)
                self.job(self.url)
            others_ended.set()
            thread.join()


@pytest.mark.long
@pytest.mark.parametrize("number", range(LIVES))
def it_lives_as_the_protocol_allows(spark, sql, make_config, opensearch_url, indexed, number):
    rng = random.Random(f"{SEED} {number}")
    config = make_config(export_group_bytes=rng.choice((1, 10**9)), retry_timeout_seconds=0, keep_index="7d")
    sql(f"CREATE TABLE {{t}} (id BIGINT, name STRING, part BIGINT) {KINDS['v2 copy-on-write']}")
    for start in (0, 12):
        sql(f"INSERT INTO {{t}} SELECT id, concat('n', id), id % 3 FROM range({start}, {start + 12})")
    with recording(opensearch_url, config.index) as recorder:
        through = config.replace(opensearch_url=recorder.url)
        export_table(spark, through)
        export_table(spark, through)
        life = Life(spark, config, OpenSearch(recorder.url), recorder.url, rng)
        for _ in range(3):
            change_some(spark, config.table, rng)
            rng.choice((life.cut_off, life.stalled))()
        sync_changes(spark, through)
        repaired = validate_table(spark, through.replace(repair=True))
        life.opensearch.close()
    (verdict,) = validate([translate({"test": f"life {number}", "events": recorder.events})])
    print(f"{verdict}; {verdict.trace.runs} runs")
    equal = indexed() == rows_as_documents(spark, config.table)
    assert (verdict.refused, repaired.ok, equal) == (None, True, True), str(verdict)
