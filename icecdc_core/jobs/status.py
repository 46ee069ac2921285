"""The status of every index with what only Spark can read: the lag, and waiting dead letters."""

from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.config import SyncConfig
from icecdc_core.runs.cluster_status import StatusReport, cluster_status, table_facts
from icecdc_core.runs.dead_letters import count_open_dead_letters
from icecdc_core.session.job_session import with_job_session
from icecdc_core.table.iceberg_table import IcebergTable


@with_job_session
def status_of_index(spark: SparkSession, config: SyncConfig) -> StatusReport:
    """The status of the index that is named, of every index if none is."""
    return cluster_status(config, config.index if "index" in config.model_fields_set else "", _steps(spark))


@with_job_session
def status(spark: SparkSession, config: SyncConfig) -> StatusReport:
    """Return the status of every index of one positions index.

    Args:
        spark: A session in which the tables' catalogs are configured; the lag of tables it cannot load is unknown.
        config: The parameters of any of the jobs; only ``positions_index`` and those of the connection are used.

    Raises:
        IcecdcError: One of its family, for example if the cluster does not answer.
    """
    return cluster_status(config, steps=_steps(spark))


def _steps(spark: SparkSession) -> Any:
    read = partial(table_facts, lambda table: IcebergTable(spark, table).metadata())
    return read, partial(count_open_dead_letters, spark)
