"""What users write, as typed values: strings, lists, JSON, durations, names and URLs.

In: the value of a parameter. Out: the typed value, or an error that names what is wrong and the remedy.
"""
