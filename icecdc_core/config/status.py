"""`StatusConfig`: the parameters of a status, which needs a connection and no table."""

from __future__ import annotations

from pydantic import Field

from icecdc_core.config.sync import SyncConfig, TableName

_ANY_TABLE = "lake.default.none"


class StatusConfig(SyncConfig):
    """The parameters of a status: those of a sync, but `table` may be missing.

    The lag is read from the tables that the positions name. Those of the catalog `lake` are read as if a table of it
    were given; those of other catalogs, if the session knows them.
    """

    table: TableName = Field(
        default=_ANY_TABLE,
        examples=["lake.shop.orders"],
        description="A table of the catalog that the lag is read from. Default: the catalog is named lake.",
    )

    @property
    def subject(self) -> dict[str, str]:
        """The labels of a run in its log and metrics; without a table there are none."""
        return super().subject if "table" in self.model_fields_set else {"table": "", "index": ""}
