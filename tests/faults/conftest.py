"""An exported table that changed since, for tests that define what `config` it is worked on with."""

from __future__ import annotations

import pytest

from tests.exported_tables import exported_table
from tests.faults.killing import rows_as_documents
from tests.faults.test_opensearch_faults import CREATE, FILL, change


@pytest.fixture
def exported(spark, sql, config):
    """An exported table that changed since."""
    exported_table(spark, sql, config, CREATE, FILL)
    change(sql)
    return config


@pytest.fixture
def equal(spark, indexed):
    """Whether index and table are equal, by no code of icecdc."""
    return lambda config: indexed(config.index) == rows_as_documents(spark, config.table)
