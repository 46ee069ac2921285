"""An exported table that changed since; tests may define with which `config` it is worked on."""

import pytest

from icecdc_core import export_table
from tests.faults.tables import CREATE, FILL, change, rows_as_documents


@pytest.fixture
def config(make_config):
    return make_config()


@pytest.fixture
def exported(spark, sql, config):
    sql(CREATE, FILL)
    export_table(spark, config)
    change(sql)
    return config


@pytest.fixture
def equal(spark, indexed):
    return lambda config: indexed(config.index) == rows_as_documents(spark, config.table)


@pytest.fixture
def just_before(monkeypatch):
    """Do something once, right before a function is called; returns what is left to do."""

    def schedule(owner, function, act):
        real, left = getattr(owner, function), [1]

        def timed(*args, **named):
            if left:
                left.pop()
                act()
            return real(*args, **named)

        monkeypatch.setattr(owner, function, timed)
        return left

    return schedule
