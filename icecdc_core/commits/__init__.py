"""The commit protocol: positions, the commit log, the lock and its lease, and the preconditions of a sync.

In: a batch with its epoch. Out: a position that moved, or an error that names the run that has the lock.
"""
