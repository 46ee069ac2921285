"""Looks into a table and its index for a person: snapshots, changes, one document, a query; it only reads.

In: a session and the parameters. Out: small frozen objects that show themselves in a notebook and in a report.
"""
