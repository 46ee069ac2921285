"""A run cut off at one request after the other, before the server saw it or after it was done: all crashes there are.

Whatever a run leaves behind, it leaves through its requests to OpenSearch. A run that none of them reaches any more is
dead for everybody else, whether its process still breathes or not. With ICECDC_FAULTS every request of every job is
tried; otherwise the seed draws one of each job.
"""

import os
import random
from collections import Counter
from itertools import chain

from icecdc_core import sync_changes, validate_table
from icecdc_core.errors import IcecdcError
from tests.faults.tables import CREATE, JOBS, SEED, change, rows_as_documents
from tests.loopback_proxy import cut_off, loopback_proxy

EVERY = bool(os.environ.get("ICECDC_FAULTS"))
# Requests a run of the job has at least; beyond its last one a run just ends.
REQUESTS = {"export": 29, "sync": 13, "repair": 18}


def points(job):
    every = [(job, number, after) for number in range(2, REQUESTS[job] + 1) for after in (False, True)]
    return every if EVERY else [random.Random(f"{SEED}{job}").choice(every)]


class DescribeARunThatIsCutOff:
    def it_leaves_what_the_next_run_ends_equal_with(self, spark, sql, new_index, indexed, opensearch, opensearch_url):
        fill = "INSERT INTO {t} SELECT id, concat('n', id) FROM range(0, 60, 1, 2)"
        config = new_index(CREATE, fill, export_group_bytes=4000, retry_timeout_seconds=0)
        outcomes = []
        for new, (job, number, after) in enumerate(chain(*map(points, JOBS)), 1000):
            if job == "repair":
                opensearch.index(index=config.index, id="foreign", body={"id": -1})
            else:
                sql(f"INSERT INTO {{t}} VALUES ({new}, 'new')")
                change(sql)
            cut = self.cut_off(spark, config, job, number, after, opensearch_url)
            sync_changes(spark, config)
            if job == "repair":
                validate_table(spark, config.replace(repair=True))
            outcomes.append((job, number, after, cut, indexed() == rows_as_documents(spark, config.table)))
        print(*Counter((job, "cut off" if cut else "ended") for job, _, _, cut, _ in outcomes).items(), sep="\n")
        assert [outcome for outcome in outcomes if not outcome[-1]] == []

    def cut_off(self, spark, config, job, number, after, url):
        """Run until the n-th request; returns which one that was, nothing when the run ended before."""
        with loopback_proxy(url, trouble=cut_off(number, after)) as proxy:
            try:
                JOBS[job](spark, config.replace(opensearch_url=proxy.url))
            except IcecdcError:
                return proxy.seen[number - 1][:2]
        return ()
