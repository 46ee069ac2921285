"""Write the actions of a begun batch; what is rejected goes to the dead letters before the position can pass it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from icecdc_core.errors import ConfigError, IcecdcError, RejectedDocumentsError
from icecdc_core.jobs import dead_letters
from icecdc_core.logs import event
from icecdc_core.opensearch.bulk_writer import BulkResult, BulkSettings, require_accepted, write_actions
from icecdc_core.opensearch.indexes import write_alias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icecdc_core.commits.positions import IndexLock
    from icecdc_core.jobs.run import Run


def write_batch(run: Run, lock: IndexLock, actions: DataFrame, before: int = 0) -> BulkResult:
    """Write actions of the batch that was begun.

    Args:
        run: The run.
        lock: The table, with the begun batch.
        actions: What to write.
        before: Documents of the same batch that were rejected before these.

    Raises:
        RejectedDocumentsError: More were rejected than allowed; the reason is kept with the batch, and the rejected
            documents are in the dead letters.
        ConfigError: The dead letters cannot be written.
        FencedError: Another run took the table over.
        IcecdcError: Others that `write_actions` raises.
    """
    batch = lock.position.batch
    assert batch is not None
    spark, config = actions.sparkSession, run.config
    settings = BulkSettings.of(config, write_alias(batch.physical_index))
    try:
        result = write_actions(actions, settings)
        dead_letters.keep(spark, config, batch, run.run_id, result.dead_letters)
        require_accepted(result, config.max_rejected_documents, before)
    except RejectedDocumentsError as error:
        try:
            dead_letters.keep(spark, config, batch, run.run_id, error.dead_letters)
        except ConfigError as unwritable:
            event(str(unwritable), logging.WARNING)
        try:
            lock.fail(str(error))
        except IcecdcError as unrecorded:
            event(f"why the batch failed was not recorded: {unrecorded}", logging.WARNING)
        raise
    return result
