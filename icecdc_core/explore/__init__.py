"""Shows a person a table and its index: snapshots, changes, one document, a query; it only reads.

In: a session and the parameters. Out: small frozen objects that show themselves in a notebook and in a report.
"""
