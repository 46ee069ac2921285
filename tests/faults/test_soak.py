"""Writers change tables all along, syncs follow, faults in between: nothing grows, and index == table at the end.

`make test SUITE=soak MINUTES=60` is the real one.
"""

import os
import random
import threading
import time

import psutil
import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.errors import IcecdcError
from icecdc_core.jobs.status import status
from tests.faults.tables import KINDS, SEED, change_some, rows_as_documents
from tests.faults.test_opensearch_faults import FAULTS
from tests.servers.loopback_proxy import loopback_proxy

MINUTES = float(os.environ.get("ICECDC_SOAK_MINUTES", "0.1"))
WRITERS = ("v2 copy-on-write", "v3 merge-on-read")


def footprint():
    """Memory in MB, open files and threads of this process; without the JVM, which has a limit of its own."""
    process = psutil.Process()
    return process.memory_info().rss / 1024**2, process.num_fds(), process.num_threads()


@pytest.mark.long
def it_stays_flat_and_ends_equal(spark, make_config, indexed, opensearch_url, name):
    rng, stop, failures = random.Random(SEED), threading.Event(), []
    configs = []
    for number, kind in enumerate(WRITERS):
        own = {"table": f"lake.ns.{name}_{number}", "index": f"{name}-{number}"}
        config = make_config(**own, request_timeout_seconds=2, retry_timeout_seconds=20)
        spark.sql(f"CREATE TABLE {config.table} (id BIGINT, name STRING, part BIGINT) {KINDS[kind]}")
        spark.sql(f"INSERT INTO {config.table} SELECT id, concat('n', id), id % 3 FROM range(100)")
        export_table(spark, config)
        configs.append(config)

    def write(config, seed):
        mine = random.Random(seed)
        while not stop.is_set():
            try:
                change_some(spark, config.table, mine)
            except Exception as error:  # reported at the end
                failures.append(f"{type(error).__name__}: {error}"[:300])
                return
            stop.wait(mine.uniform(0.2, 2.0))

    def trouble(method, path, body):
        return rng.choice(FAULTS) if path != "/" and rng.random() < 0.02 else None

    writers = [threading.Thread(target=write, args=(config, SEED + n)) for n, config in enumerate(configs)]
    for writer in writers:
        writer.start()
    seen, syncs, errors, lags = [], 0, [], []
    end = time.monotonic() + 60 * MINUTES
    try:
        with loopback_proxy(opensearch_url, trouble=trouble) as proxy:
            while time.monotonic() < end or syncs < 4:
                for config in configs:
                    try:
                        report = sync_changes(spark, config.replace(opensearch_url=proxy.url))
                        lags.append(report.lag_seconds)
                    except IcecdcError as error:
                        errors.append(type(error).__name__)
                    syncs += 1
                seen.append(footprint())
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    for config in configs:
        sync_changes(spark, config)
    equal = [indexed(config.index) == rows_as_documents(spark, config.table) for config in configs]
    equal += [validate_table(spark, config).ok for config in configs]
    behind = [(found.lag_snapshots, found.pending) for found in status(spark, configs[0]).indexes]
    for config in configs:
        spark.sql(f"DROP TABLE {config.table}")
    # After a third of the time whatever is made once has been made.
    early, late = seen[len(seen) // 3], seen[-1]
    grown = [round(b - a, 1) for a, b in zip(early, late, strict=True)]
    print(
        f"{syncs} syncs in {MINUTES:g} minutes, {len(errors)} ended with an error, longest lag {max(lags):.0f} s; "
        f"memory (MB), files, threads: {early} to {late}"
    )
    assert (failures, equal, behind) == ([], [True] * 4, [(0, None)] * 2)
    assert (grown[0] < 150, grown[1] < 40, grown[2] < 20) == (True, True, True), grown
