"""Names: the columns of a change row that are not the table's own, and how any column name is quoted."""

from __future__ import annotations

CHANGE_TYPE = "_change_type"
"""What happened to the row: ``INSERT`` or ``DELETE`` (an update is a DELETE and an INSERT)."""

CHANGE_ORDINAL = "_change_ordinal"
"""The step in which it happened, counted from 0, oldest first."""

COMMIT_SNAPSHOT_ID = "_commit_snapshot_id"
"""The snapshot the step ends with."""

ROW_POSITION = "_row_position"
"""Where the row lies in its data file; only in frames of tables without identifier columns."""

RESERVED = (ROW_POSITION, CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID)

INSERT = "INSERT"
DELETE = "DELETE"


def quoted(name: str) -> str:
    """Quote a column name so that Spark takes every character of it literally.

    Example:
        >>> quoted("price in $.¢")
        '`price in $.¢`'
        >>> quoted("a`b")
        '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"
