"""Upkeep of tables: small files are rewritten, and old snapshots expire."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core.ingest.branches import MAIN
from icecdc_core.logs import event
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.catalogs import load_table


@contextmanager
def failures_logged(what: str, table: str) -> Iterator[None]:
    """Log a failure instead of raising it: the records of a batch do not depend on it."""
    try:
        yield
    except Exception as error:
        event(f"{what}: {mask_secrets(str(error))[:500]}", logging.WARNING, table=table)


def rewrite_small_files(spark: SparkSession, name: str, min_files: int, branch: str = MAIN) -> bool:
    actions: Any = iceberg_class(spark, "spark.actions.SparkActions").get(spark._jsparkSession)
    action = actions.rewriteDataFiles(load_table(spark, name)).toBranch(branch)
    result = action.option("min-input-files", str(min_files)).execute()
    return int(result.rewrittenDataFilesCount()) > 0


def expire_snapshots(spark: SparkSession, name: str, older_than_seconds: float) -> None:
    oldest_ms = int((time.time() - older_than_seconds) * 1000)
    load_table(spark, name).expireSnapshots().expireOlderThan(oldest_ms).commit()
