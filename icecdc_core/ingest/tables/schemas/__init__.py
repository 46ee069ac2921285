"""Destination tables: opened or created, with columns that follow the records.

In: the columns of records. Out: a table that has them, or an error that says why not.
"""
