"""Kafka: the topics of the brokers, offset arithmetic, and the stream of micro-batches.

In: topics and start offsets. Out: micro-batches, each with the offsets that it covers.
"""
