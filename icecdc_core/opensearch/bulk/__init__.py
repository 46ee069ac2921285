"""Bulk writing: requests of bounded size, sent and sent again, and a result for every operation.

In: partitions of bulk lines, on executors. Out: counts, rejected documents, or the failure that ends the job.
"""
