"""Kafka to Iceberg, exactly once: many tables from one job."""

from __future__ import annotations

from icecdc_core.ingest.config import IngestConfig

__all__ = ["IngestConfig"]
