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
