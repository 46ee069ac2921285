"""Random histories of the tables of nested documents: after each sync the index equals a query over all of them.

``ICECDC_HISTORIES`` says how many (a sample by default), ``ICECDC_SEED`` the first; a failure prints its history.
"""

import os
import random
from unittest import mock

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.runs import nested
from tests.given.nested_shop import KINDS, STATEMENTS, TABLES, Shop
from tests.histories.proof import break_off

EVERY = "ICECDC_HISTORIES" in os.environ
MANY = int(os.environ.get("ICECDC_HISTORIES", "1"))
SEED = int(os.environ.get("ICECDC_SEED", "20261109"))
# The sample is about two of the tables, which takes a third of the time.
THOSE = [*TABLES] if EVERY else ["film", "language"]
CHANGES = [each for each in STATEMENTS if any(f"{{{table}}}" in each for table in THOSE)]
SYNC, BROKEN, COMPACT, ROLLBACK = "sync", "broken sync", "compaction", "rollback"


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("number", range(MANY))
def it_follows_every_history(spark, make_config, name, indexed, number):
    chance = random.Random(SEED + number)
    kinds = [chance.choice(KINDS) for _ in THOSE]
    steps = chance.choices(
        [*CHANGES, SYNC, BROKEN, COMPACT, ROLLBACK], [*[1] * len(CHANGES), 9, 5, 3, 3], k=16 if EVERY else 3
    )
    steps = steps if EVERY else [chance.choice(CHANGES), BROKEN, *steps]
    shop = Shop(spark, name, *kinds, tables=THOSE)
    config = make_config(**shop.spec)
    lived = [f"seed {SEED + number}", *kinds]
    export_table(spark, config)
    try:
        for step in [*steps, SYNC]:
            # Links of changed rows are in the driver, or many of them in a cache.
            with mock.patch.object(nested, "_FEW", chance.choice([0, 20_000])):
                lived.append(live(spark, shop, config, indexed, step, chance))
        assert not EVERY or validate_table(spark, config).ok
    except BaseException:
        print("\n".join(lived))
        raise
    finally:
        shop.drop()


def live(spark, shop, config, indexed, step, chance):
    table = chance.choice(THOSE)
    if step == SYNC:
        assert not sync_changes(spark, config).drifted
        assert indexed() == shop.documents()
    elif step == BROKEN:
        break_off(spark, config, chance.randint(0, 11))
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
