"""Bulk writes in the test's own process."""

import pickle

import pyarrow as pa

from icecdc_core.opensearch.bulk import BulkResult, BulkWriter


def write(writer: BulkWriter, *actions: str) -> BulkResult:
    """Send bulk lines as a Spark task sends those of its partition."""
    batch = pa.RecordBatch.from_arrays([pa.array(actions, pa.string())], names=["action"])
    *_, answer = writer.write_partition([batch])
    return pickle.loads(answer.column("result")[0].as_py())
