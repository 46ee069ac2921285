"""Checksums of documents: those computed from the rows of a table, and those of an index.

In: a frame of documents, or an index at a point in time. Out: frames of document id and checksum.
"""
