"""The rows that views show: those that differ between snapshots, and those of one document.

In: opened sources and identifiers that a user typed. Out: pairs of before and after, as plain values.
"""
