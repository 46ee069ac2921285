"""Kafka to Iceberg: exactly once, many tables from one job."""
