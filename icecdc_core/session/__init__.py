"""The Spark session and its JVM: Maven packages, Java, the catalog settings, and the private classes in use.

In: the parameters. Out: a session in which the table's catalog works, or a typed error that says what is missing.
"""
