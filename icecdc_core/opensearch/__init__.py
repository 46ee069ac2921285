"""OpenSearch: client, retries, indexes and aliases, bulk writing, checksums of documents. It knows nothing of Iceberg.

In: connection parameters and bulk lines. Out: counted results of every operation, or typed errors.
"""
