"""The jobs: export, sync, validate, repair, replay, poll, status. Each is a short composition of the rooms below.

In: a session and the parameters. Out: a report; the index and its position have moved.
"""
