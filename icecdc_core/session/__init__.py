"""The Spark session and its JVM: Maven packages, Java, the catalog settings, and the private classes in use.

In: the parameters. Out: a session in which the table's catalog works, or a typed error that says what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icecdc_core.session.spark import get_spark, running_session

__all__ = ["get_spark", "running_session"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import Spark when a session is wanted; finding Java and jars does not need it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import icecdc_core.session.compat  # noqa: F401 (it refuses a pyspark that is missing or too old)
        from icecdc_core.session import spark

        return getattr(spark, name)
