"""What users select: projection and row filter, parsed by Spark, and what each field is computed from.

In: the texts of `select` and `row_filter`, and a table. Out: deterministic expressions, and the columns they use.
"""
