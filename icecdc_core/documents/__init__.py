"""Documents: the mapping of a table's index, and the JSON of one bulk operation for each row.

In: a Spark schema, or a DataFrame of change rows. Out: an index mapping, or a DataFrame of NDJSON bulk lines.
"""
