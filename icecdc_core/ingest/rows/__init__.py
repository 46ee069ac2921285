"""From records to rows: the schema that records have, and how each record fits a table's columns.

In: decoded JSON payloads. Out: rows of the table's schema; for every record that does not fit, the reason.
"""
