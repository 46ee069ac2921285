"""Checksums of documents: of those that the rows of a table give, and of those that an index has.

In: a frame of documents, or an index at a point in time. Out: frames of document id and checksum.
"""
