"""Updates without their large values: each gets the values that its row had before, from the batch or the table.

Debezium leaves a value out that is large and did not change. Such an update is applied to the row that the records
before it made, in the order of docs/kafka.md ("Upserts and deletes"). The source never has a null there: without a
value, the update is a dead letter and changes nothing. Only an identifier whose last record is such an update is
looked at, from its last other record on.
"""

import json

from pyspark.sql import Column, DataFrame, Window, functions as F, types as T

from icecdc_core.columns import OWN_PREFIX, quoted
from icecdc_core.ingest.dead_letters import POSITION
from icecdc_core.ingest.formats.decode_results import PARTIAL
from icecdc_core.ingest.readers import StructReader, any_of
from icecdc_core.ingest.rows import ROW
from icecdc_core.ingest.upserts import CLEARED, IDENTIFIER, ORDER, in_order

LOST = f"{OWN_PREFIX}lost"
"""Column with the names of the fields that an update has no value for."""
NOT_FILLED = "a value is unavailable: unchanged, and neither in the source's log nor in the row here"

_STORED, _PLACE, _STATE = "stored", f"{OWN_PREFIX}place", f"{OWN_PREFIX}state"


def stored_rows(table: DataFrame, reader: StructReader, identifiers: list[str], ordering: str) -> DataFrame:
    """The table's rows as `last_row_of_each` has rows; Spark's types of the columns are those of the reader."""
    kinds = {column.name: column.dataType for column in reader.kind}
    own = [F.col(quoted(column)).alias(f"{IDENTIFIER}{number}") for number, column in enumerate(identifiers)]
    row = F.struct(*(F.col(quoted(column)).cast(kind).alias(column) for column, kind in kinds.items()))
    order = F.col(quoted(ordering)) if ordering else F.lit(0)
    return table.select(*own, order.alias(ORDER), row.alias(ROW), F.lit(_STORED).alias("op"))


def fill_unavailable(
    last: DataFrame, rows: DataFrame, stored: DataFrame, reader: StructReader, has_order: bool
) -> tuple[DataFrame, DataFrame]:
    """Return the last row of each identifier with all values, and the positions of the updates that lack some."""
    own = [name for name in rows.columns if name.startswith(IDENTIFIER)]
    is_partial = F.col("op").eqNullSafe(PARTIAL)
    wanted = F.broadcast(last.where(is_partial).select(*own))
    found = in_order(rows, has_order).join(wanted, own, "left_semi")
    found = found.unionByName(stored.join(wanted, own, "left_semi"), allowMissingColumns=True)
    of_identifier = Window.partitionBy(*own)
    # An earlier record of the partition is older, whatever the clocks said.
    in_partition = Window.partitionBy(*own, "topic", "partition", ORDER).orderBy("offset")
    since = F.min("timestamp").over(in_partition.rowsBetween(Window.currentRow, Window.unboundedFollowing))
    is_stored = F.col("op").eqNullSafe(_STORED)
    found = found.withColumns(
        {_STATE: since, CLEARED: F.coalesce(F.bool_or(CLEARED).over(of_identifier), F.lit(False))}
    )
    found = found.where(~(is_stored & F.col(CLEARED)))  # a delete without an ordering value is newer than the table
    oldest = F.asc_nulls_first(ORDER), is_stored.desc(), F.asc(_STATE), F.asc("partition"), F.asc("offset")
    in_time = of_identifier.orderBy(*oldest)
    later = F.count_if(~is_partial).over(in_time.rowsBetween(1, Window.unboundedFollowing))
    found = found.withColumns({_STATE: later, _PLACE: F.row_number().over(in_time)}).where(F.col(_STATE) == 0)
    event = F.struct(_PLACE, *(name for name in last.columns if name not in own)).alias("event")
    kind = _nullable(found.select(event).schema["event"].dataType)
    events = F.array_sort(F.collect_list(event.cast(kind)), lambda one, other: one[_PLACE] - other[_PLACE])
    state = F.aggregate(events, _nothing(kind), lambda state, each: _apply(state, each, reader))
    # The merge and the dead letters need the same answer, and a merge reads its source more than once.
    states = found.groupBy(*own).agg(state.alias(_STATE)).localCheckpoint()
    filled = states.where(f"{_STATE}.last IS NOT NULL AND {_STATE}.last.op <> '{_STORED}'")
    filled = filled.select(*own, f"{_STATE}.last.*").select(*last.columns)
    unfilled = states.select(F.explode(f"{_STATE}.unfilled").alias(_STATE)).select(f"{_STATE}.*")
    return last.where(~is_partial).unionByName(filled), unfilled


def _nullable(kind: T.DataType) -> T.StructType:
    text = kind.json()
    for key in ("nullable", "containsNull", "valueContainsNull"):
        text = text.replace(f'"{key}":false', f'"{key}":true')
    return T.StructType.fromJson(json.loads(text))


def _nothing(kind: T.StructType) -> Column:
    """The state before the first record: no row, no record, and none without its values."""
    positions = T.ArrayType(T.StructType([kind[name] for name in POSITION]))
    fields = {"row": (F.lit(None), kind[ROW].dataType), "last": (F.lit(None), kind), "unfilled": (F.array(), positions)}
    return F.struct(*(value.cast(of).alias(name) for name, (value, of) in fields.items()))


def _apply(state: Column, event: Column, reader: StructReader) -> Column:
    """The state after a record."""
    lacking, values = [F.lit(False)], []
    for field in reader.fields:
        if field.reader:
            name = field.column.name
            is_lost = F.coalesce(F.arrays_overlap(event[LOST], F.lit(list(field.spellings))), F.lit(False))
            before = state["row"][name]
            values.append(F.when(is_lost, before).otherwise(event[ROW][name]).alias(name))
            lacking.append(is_lost & before.isNull())
    is_partial = event["op"].eqNullSafe(PARTIAL)
    row = F.when(is_partial, F.struct(*values)).otherwise(event[ROW])
    done = event.withField(ROW, row).withField("op", F.when(is_partial, F.lit("upsert")).otherwise(event["op"]))
    kept = F.when(~event["op"].eqNullSafe("delete"), row)
    position = F.struct(*(event[name].alias(name) for name in POSITION))
    without = F.struct(state["row"], state["last"], F.array_append(state["unfilled"], position).alias("unfilled"))
    applied = F.struct(kept.alias("row"), done.alias("last"), state["unfilled"].alias("unfilled"))
    return F.when(is_partial & any_of(lacking), without).otherwise(applied)
