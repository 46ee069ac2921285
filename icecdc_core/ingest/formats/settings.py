"""The settings that formats and rows need; `IngestConfig` has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class FormatSettings(Protocol):
    """Settings for decoding records and parsing them into rows; any object with these attributes fits."""

    @property
    def format(self) -> str:
        """One of ``json``, ``avro``, ``json_schema``, ``debezium_json``, ``debezium_avro`` and ``dms``."""

    @property
    def schema_registry_url(self) -> str:
        """``http(s)://host:port[/path]`` of the schema registry; only for formats with a registry."""

    @property
    def schema_registry_auth(self) -> str:
        """``user:password`` of the schema registry, with references resolved; empty for none."""

    @property
    def op_field(self) -> str:
        """Field of plain records with the operation (insert, update or delete); dotted if nested; empty for none."""

    @property
    def tombstones(self) -> str:
        """What to do with records without a value: ``delete`` the row of the key, ``ignore`` or ``reject`` them."""

    @property
    def key_format(self) -> str:
        """How a key that is a single value is written: ``text`` or ``json``."""

    @property
    def identifier_columns(self) -> Sequence[str]:
        """Columns that identify a row. Every record must have them, and they stay required. May be empty."""

    @property
    def column_case(self) -> str:
        """How field names match column names: ``sensitive``, ``insensitive``, or ``lower``.

        ``lower`` matches as ``insensitive`` does, and new columns get lower-case names.
        """

    @property
    def unknown_fields(self) -> str:
        """What to do with a field without a column: ``ignore`` it, or ``reject`` its record."""

    @property
    def evolve_schema(self) -> bool:
        """Whether a table's schema follows the records. Then a record with a field without a column is rejected."""
