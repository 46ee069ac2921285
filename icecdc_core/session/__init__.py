"""The Spark session and its JVM: Maven packages, Java, the catalog settings, and the private classes in use.

In: the parameters. Out: a session in which the table's catalog works, or a typed error that says what is missing.
"""

from __future__ import annotations

from icecdc_core.session.spark import get_spark

__all__ = ["get_spark"]
