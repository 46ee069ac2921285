"""The source: an Iceberg table, the rows and columns selected from it, and its snapshots.

In: a session and a table name. Out: a `Source` with metadata, selection and scans of chosen files.
"""
