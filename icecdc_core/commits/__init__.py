"""The commit protocol: positions, the commit log, the lease, and what forbids continuing from a position.

In: a batch with its epoch. Out: a position that moved, or an error that says who holds the index.
"""
