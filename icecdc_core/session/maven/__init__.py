"""The jars that a session and the embedded services need: Maven coordinates, and files fetched once and checked.

In: the Spark line and the catalog properties. Out: coordinates for Spark, or paths of verified jars.
"""
