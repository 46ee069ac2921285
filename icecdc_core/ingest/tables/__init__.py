"""Destination tables: created, evolved, staged, merged and published; and the Kafka offsets each table records.

In: the records of one batch. Out: at most one commit in each table, and a row in the commit log.
"""
