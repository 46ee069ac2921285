"""Kafka: what the brokers have, offsets, and the stream of batches.

In: topics and starting offsets. Out: micro-batches, each with the offsets that it covers.
"""
