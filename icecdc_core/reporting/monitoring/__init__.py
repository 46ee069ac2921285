"""What other systems hear of a run: traces and metrics by OpenTelemetry, lineage by OpenLineage.

In: the beginning, stages, batches and end of a run. Out: what the environment asks for, sent in the background.
"""
