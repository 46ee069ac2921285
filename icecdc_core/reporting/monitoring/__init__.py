"""Traces and metrics of a run by OpenTelemetry, lineage by OpenLineage.

In: the beginning, stages, batches and end of a run. Out: what the environment asks for, sent in the background.
"""
