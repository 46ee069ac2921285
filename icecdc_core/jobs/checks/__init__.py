"""Checks of an environment: whether everything is set up, and whether a whole round works.

In: a session and parameters. Out: a report with one line for each check.
"""
