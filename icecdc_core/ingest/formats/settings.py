"""What the formats and schemas of the ingest ask of its settings; `IngestConfig` answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class FormatSettings(Protocol):
    """Settings of decoding records and fitting them into a table; any object with these attributes will do."""

    @property
    def format(self) -> str:
        """One of ``json``, ``avro``, ``json_schema``, ``debezium_json``, ``debezium_avro`` and ``dms``."""

    @property
    def schema_registry_url(self) -> str:
        """``http(s)://host:port[/path]`` of the schema registry; for the formats that need one."""

    @property
    def schema_registry_auth(self) -> str:
        """``user:password`` for it, no longer a reference; empty: none."""

    @property
    def op_field(self) -> str:
        """Field of plain records that tells insert, update or delete, dotted when nested; empty: none."""

    @property
    def tombstones(self) -> str:
        """Of records without a value: ``delete`` the row of their key, ``ignore`` or ``reject`` them."""

    @property
    def key_format(self) -> str:
        """Of keys that are single values: ``text``, or ``json``."""

    @property
    def identifier_columns(self) -> Sequence[str]:
        """Columns that identify a row: every record must have them, and they stay required. May be empty."""

    @property
    def column_case(self) -> str:
        """How fields find their columns: ``sensitive``, ``insensitive``, or ``lower``.

        ``lower`` is ``insensitive``, and new columns get lower-case names.
        """

    @property
    def unknown_fields(self) -> str:
        """Of a field that has no column: ``ignore`` it, or ``reject`` its record."""

    @property
    def evolve_schema(self) -> bool:
        """Whether tables follow their records. A field that still has no column then rejects its record."""
