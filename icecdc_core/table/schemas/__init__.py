"""Schemas of Iceberg tables: which columns Spark can read, what changed between two schemas, and the identifiers.

In: a table or its schemas. Out: readable tables, differences, names of identifier columns.
"""
