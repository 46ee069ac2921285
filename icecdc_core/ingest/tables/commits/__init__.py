"""Commits of a micro-batch: its offsets in the snapshots of tables, the commit log, and tables that were reset.

In: staged snapshots. Out: published ones, each once, and the offsets at which the next batch starts.
"""
