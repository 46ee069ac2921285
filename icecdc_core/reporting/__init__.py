"""What a person or a monitor sees of a run: reports, figures, logs of its stages, metrics and exit states.

In: what a job counted and measured. Out: a report, figures, a metrics file.
"""
