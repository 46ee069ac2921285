"""A run of a job and its batches: what to read next, the changes of a batch, begin, write, commit, resume.

In: a session, the parameters and the position. Out: a batch that was written and committed, and its report.
"""
