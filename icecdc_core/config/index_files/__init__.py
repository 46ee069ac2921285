"""Index files: strict YAML, defaults, references to the environment, and entries that cannot be together.

In: a file such as `indexes.yml`. Out: the parameters of each index.
"""
