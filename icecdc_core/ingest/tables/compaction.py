"""Compaction of small files at the end of a run: a `replace` snapshot, which no sync has to read."""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from icecdc_core.errors import IcecdcError
from icecdc_core.logs import event
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.catalogs import load_table


def compact(spark: SparkSession, names: list[str], min_files: int) -> list[str]:
    """Rewrite the small data files of tables that have enough of them.

    A failure leaves the table as it is and is logged. Most often another writer rewrote the same files.
    """
    actions: Any = iceberg_class(spark, "spark.actions.SparkActions")
    compacted = []
    for name in names:
        try:
            action = actions.get(spark._jsparkSession).rewriteDataFiles(load_table(spark, name))
            result = action.option("min-input-files", str(min_files)).execute()
        except (IcecdcError, PySparkException, Py4JError) as error:
            event(f"the table was not compacted: {str(error)[:500]}", logging.WARNING, table=name)
            continue
        if int(result.rewrittenDataFilesCount()):
            compacted.append(name)
    return compacted
