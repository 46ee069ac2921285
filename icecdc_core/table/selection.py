"""What is read of a table's rows: which columns, under which condition, and what a DELETE needs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.columns import ROW_POSITION, private_identifier, quoted
from icecdc_core.errors import IdentifierColumnsError
from icecdc_core.table.expressions.projection import Projection
from icecdc_core.table.file_tasks import FileTasks
from icecdc_core.table.iceberg_table import IcebergTable


@dataclass(frozen=True)
class Selection:
    """The part of a table's rows that is read."""

    columns: tuple[str, ...]
    row_filter: str = ""
    with_row_position: bool = False
    delete_columns: tuple[str, ...] = ()
    projection: Projection | None = None
    identifier_columns: tuple[str, ...] = ()

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns of a selected row, without its position and what happened to it."""
        if self.projection is None:
            return self.columns
        return (*self.projection.schema.names, *map(private_identifier, self.identifier_columns))

    def select(self, rows: DataFrame, *more: str) -> DataFrame:
        """Return the selected part of whole table rows, followed by ``more`` columns (SQL expressions)."""
        selected = [quoted(name) for name in self.columns]
        for name in self.identifier_columns if self.projection else ():
            selected.append(f"{quoted(name)} AS {quoted(private_identifier(name))}")
        if self.row_filter:
            rows = rows.where(F.expr(self.row_filter))
        if self.with_row_position:
            # A file's path has values of the columns that partition the table, which a projection may mask.
            place = (
                "concat_ws(':', _file, _pos)" if self.projection is None else "sha2(concat_ws(':', _file, _pos), 256)"
            )
            position = "cast(_row_id AS string)" if "_row_id" in rows.schema.names else place
            selected.append(f"{position} AS {ROW_POSITION}")
        rows = rows.selectExpr(*selected, *more)
        return rows if self.projection is None else self.projection.apply(rows)

    def select_deleted(self, rows: DataFrame, *more: str) -> DataFrame:
        """Return the selected part of deleted rows: ``select``, with only ``delete_columns`` filled."""
        return null_all_but(self.select(rows, *more), self.row_columns, self.delete_columns)


def null_all_but(rows: DataFrame, columns: Sequence[str], filled: Sequence[str]) -> DataFrame:
    """Return rows in which every column but the filled ones is null; all stay filled if ``filled`` is empty."""
    if not filled:
        return rows
    # A null of the column's own type.
    blank = {name: f"CASE WHEN false THEN {quoted(name)} END AS {quoted(name)}" for name in {*columns} - {*filled}}
    return rows.selectExpr(*(blank.get(name, quoted(name)) for name in rows.columns))


def require_row_positions(table: IcebergTable, tasks: FileTasks) -> None:
    """Check that the position of every row of these files is known."""
    if len(tasks) and table.has_row_lineage and not table.have_row_ids(tasks):
        raise IdentifierColumnsError(
            f"Rows of '{table.name}' have no row id yet, because they were written before it became format version 3 "
            "(or lie in ORC files, whose row ids Spark 4.0 cannot read), and there are no identifier columns",
            subject="identifier_columns",
            value=[],
            remedy="name the columns that identify a row, or commit once to the table (an append or a compaction will "
            "do): that gives every row its id",
        )
