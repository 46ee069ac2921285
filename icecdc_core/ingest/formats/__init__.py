"""Record formats: JSON, Avro, JSON Schema, Debezium and AWS DMS, with or without a schema registry.

In: Kafka records as bytes. Out: for each record a JSON payload with its operation, or the reason why it is unreadable.
"""
