"""An exported table that changed since, for tests that define what `config` it is worked on with."""

import pytest

from icecdc_core import export_table
from tests.faults.tables import CREATE, FILL, change, rows_as_documents


@pytest.fixture
def exported(spark, sql, config):
    sql(CREATE)
    sql(FILL)
    export_table(spark, config)
    change(sql)
    return config


@pytest.fixture
def equal(spark, indexed):
    return lambda config: indexed(config.index) == rows_as_documents(spark, config.table)
