"""Documents: which mapping they need, and how a row becomes the JSON of one bulk operation.

In: a Spark schema, or a DataFrame of change rows. Out: an index mapping, or a DataFrame of NDJSON bulk lines.
"""
