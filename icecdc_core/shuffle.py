"""Bring all changes of one identifier into one partition; the transforms after it need no further exchange.

Rows come out as they went in, but all rows of one identifier are in one partition, here with identifier ``id``:

    ==  ============  =========      ==  ============  =========
    id  _change_type  partition      id  _change_type  partition
    ==  ============  =========      ==  ============  =========
    1   DELETE        0              1   DELETE        3
    2   DELETE        0         ->   1   INSERT        3
    1   INSERT        1              2   DELETE        0
    ==  ============  =========      ==  ============  =========
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from icecdc_core.columns import quoted, resolve_identifiers


def shuffle_by_identifiers(changes: DataFrame, identifier_columns: Sequence[str]) -> DataFrame:
    """Put all rows of one identifier into one partition; nulls are equal to each other.

    ``remove_carryovers`` and ``merge_updates`` work within one identifier, so after this they need no further exchange,
    unless an identifier is a float, a double or a string with a collation.
    Spark chooses the number of partitions (``spark.sql.shuffle.partitions``, coalesced by adaptive execution).

    Args:
        changes: Any frame.
        identifier_columns: The columns that identify a row.

    Returns:
        The same rows and columns, partitioned by identifier.

    Raises:
        IdentifierColumnsError: The identifier columns are missing, given twice or nested.
    """
    return changes.repartition(*map(quoted, resolve_identifiers(changes, identifier_columns)))
