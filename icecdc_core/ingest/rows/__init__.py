"""Records to rows: infers the schema of records, and parses each record into the columns of a table.

In: decoded JSON payloads. Out: a row of the table for each record that fits, a problem for each that does not.
"""
