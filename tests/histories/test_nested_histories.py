"""Random histories of the tables of nested documents: after each sync the index equals a query over all of them.

``ICECDC_HISTORIES`` says how many (a sample by default), ``ICECDC_SEED`` the first; a failure prints its history.
"""

from __future__ import annotations

import os
import random
from unittest import mock

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.jobs import sync
from icecdc_core.runs.batch import commit_batch
from tests.nested_shop import TABLES, Shop

MANY = int(os.environ.get("ICECDC_HISTORIES", "2"))
SEED = int(os.environ.get("ICECDC_SEED", "20261125"))
MERGE_ON_READ = ", ".join(f"'write.{each}.mode' = 'merge-on-read'" for each in ("update", "delete", "merge"))
KINDS = [f"'format-version' = '{version}'" for version in (1, 2, 3)]
KINDS += [f"'format-version' = '{version}', {MERGE_ON_READ}" for version in (2, 3)]
STATEMENTS = (
    "UPDATE {film} SET title = 'title {r}' WHERE film_id = {n}",
    "UPDATE {film} SET language_id = {m} WHERE film_id = {n}",
    "UPDATE {film} SET original_id = nullif({m}, 2), title = 't' WHERE film_id % 3 = {n} % 3",
    "UPDATE {film} SET shelf = if({r} % 2 = 0, 'gone', 'a') WHERE film_id = {n}",
    "DELETE FROM {film} WHERE film_id = {n}",
    "DELETE FROM {film} WHERE film_id = {n}; INSERT INTO {film} VALUES ({n}, 'new {r}', {m}, {r} % 4, 'a')",
    "UPDATE {film} SET film_id = film_id + 100 WHERE film_id = {n}",
    "INSERT INTO {film_actor} VALUES ({n}, 10 + {m})",
    "DELETE FROM {film_actor} WHERE film_id = {n}",
    "DELETE FROM {film_actor} WHERE actor_id = 10 + {m} AND film_id % 2 = {r} % 2",
    "UPDATE {film_actor} SET film_id = {n} WHERE actor_id = 10 + {m}",
    "UPDATE {film_actor} SET actor_id = 10 + {m} WHERE film_id = {n}",
    "UPDATE {actor} SET name = if({r} % 3 = 0, 'hidden', 'name {r}') WHERE actor_id = 10 + {m}",
    "UPDATE {actor} SET country_id = 100 + {r} % 3 WHERE actor_id = 10 + {m}",
    "UPDATE {actor} SET note = 'note {r}'",
    "DELETE FROM {actor} WHERE actor_id = 10 + {m}",
    "DELETE FROM {actor} WHERE actor_id = 10 + {m}; INSERT INTO {actor} VALUES (10 + {m}, 'new {r}', 101, 'x')",
    "UPDATE {country} SET name = 'name {r}' WHERE country_id = 100 + {r} % 3",
    "UPDATE {country} SET continent = if({r} % 2 = 0, 'EU', 'AF') WHERE country_id = 100 + {m} % 3",
    "DELETE FROM {country} WHERE country_id = 100 + {m} % 3",
    "DELETE FROM {country} WHERE country_id = 102; INSERT INTO {country} VALUES (102, 'new {r}', 'EU')",
    "UPDATE {continent} SET name = 'name {r}' WHERE code = 'EU'",
    "DELETE FROM {continent} WHERE code = 'AF'",
    "DELETE FROM {continent} WHERE code = 'AF'; INSERT INTO {continent} VALUES ('AF', 'Africa {r}')",
    "UPDATE {language} SET name = 'name {r}' WHERE language_id = {m}",
    "DELETE FROM {language} WHERE language_id = {m}",
    "DELETE FROM {language} WHERE language_id = {m}; INSERT INTO {language} VALUES ({m}, 'new {r}', 'x')",
)
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
    steps = chance.choices([*STATEMENTS, SYNC, BROKEN, COMPACT, ROLLBACK], [*[1] * len(STATEMENTS), 9, 5, 3, 3], k=16)
    shop = Shop(spark, name, *kinds)
    shop.fill()
    config = make_config(**shop.spec)
    lived = [f"seed {SEED + number}", *kinds]
    export_table(spark, config)
    try:
        for step in [*steps, SYNC]:
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
        numbers = {"{n}": chance.randint(1, 6), "{m}": chance.randint(0, 3), "{r}": chance.randint(0, 99)}
        for text, value in numbers.items():
            step = step.replace(text, str(value))
        for statement in step.split("; "):
            shop.sql(statement)
        return step
    return f"{step} of {table}"


assert commit_batch is sync.commit_batch
