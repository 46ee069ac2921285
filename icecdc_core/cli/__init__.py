"""The command line `icecdc`: commands and options in, tables, JSON and exit codes out.

In: the arguments. Out: the parameters of one job, or of the same job for many indexes; and how a person reads its end.
"""
