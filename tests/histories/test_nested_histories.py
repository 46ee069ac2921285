"""Random histories of the tables of nested documents: after each sync the index equals a query over all of them.

``ICECDC_HISTORIES`` says how many (a sample by default), ``ICECDC_SEED`` the first; a failure prints its history.
"""

import os
import random
from unittest import mock

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.jobs import sync
from icecdc_core.runs import nested
from tests.nested_shop import STATEMENTS, TABLES, Shop

EVERY = "ICECDC_HISTORIES" in os.environ
MANY = int(os.environ.get("ICECDC_HISTORIES", "1"))
SEED = int(os.environ.get("ICECDC_SEED", "20261125"))
MERGE_ON_READ = ", ".join(f"'write.{each}.mode' = 'merge-on-read'" for each in ("update", "delete", "merge"))
KINDS = [f"'format-version' = '{version}'" for version in (1, 2, 3)]
KINDS += [f"'format-version' = '{version}', {MERGE_ON_READ}" for version in (2, 3)]
SYNC, BROKEN, COMPACT, ROLLBACK = "sync", "broken sync", "compaction", "rollback"


class BrokenError(Exception):
    """The run that the test breaks."""


def broken_commit(run, lock, source, report):
    """Write a batch and die; if its failure is recorded, the next batch covers it by a cut."""
    if random.random() < 0.5:
        lock.record(failure="broken by the test")
    raise BrokenError


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("number", range(MANY))
def it_follows_every_history(spark, make_config, name, indexed, number):
    chance = random.Random(SEED + number)
    random.seed(SEED + number)
    kinds = [chance.choice(KINDS) for _ in TABLES]
    steps = chance.choices(
        [*STATEMENTS, SYNC, BROKEN, COMPACT, ROLLBACK], [*[1] * len(STATEMENTS), 9, 5, 3, 3], k=16 if EVERY else 10
    )
    shop = Shop(spark, name, *kinds)
    shop.fill()
    config = make_config(**shop.spec)
    lived = [f"seed {SEED + number}", *kinds]
    export_table(spark, config)
    try:
        for step in [*steps, SYNC]:
            # Links of changed rows are in the driver, or many of them in a cache.
            with mock.patch.object(nested, "_FEW", chance.choice([0, 20_000])):
                lived.append(live(spark, shop, config, indexed, step, chance))
        assert validate_table(spark, config).ok
    except BaseException:
        print("\n".join(lived))
        raise
    finally:
        shop.drop()


def live(spark, shop, config, indexed, step, chance):
    table = chance.choice([*TABLES])
    if step == SYNC:
        sync_changes(spark, config)
        assert indexed() == shop.documents()
    elif step == BROKEN:
        with mock.patch.object(sync, "commit_batch", broken_commit):
            try:
                sync_changes(spark, config)
            except BrokenError:
                return f"{step}: it broke"
    elif step == COMPACT:
        name = shop.table(table).removeprefix("lake.")
        options = "map('rewrite-all', 'true')"
        shop.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => {options})")
    elif step == ROLLBACK:
        history = shop.sql(f"SELECT snapshot_id FROM {{{table}}}.history WHERE is_current_ancestor").collect()
        if len(history) > 1:
            name, to = shop.table(table).removeprefix("lake."), history[-2].snapshot_id
            shop.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {to})")
    else:
        return shop.change(chance, step)
    return f"{step} of {table}"
