"""Record formats: JSON, Avro, JSON Schema, Debezium and AWS DMS, with or without a schema registry.

In: Kafka records as bytes. Out: one JSON payload for each record with what to do with it, or why it cannot be read.
"""
