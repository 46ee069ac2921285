"""Keep OpenSearch indexes in sync with Apache Iceberg tables: export, sync by snapshot diffs, validate."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig as SyncConfig
    from icecdc_core.jobs.export import export_table as export_table
    from icecdc_core.jobs.plan import plan_index as plan_index
    from icecdc_core.jobs.replay import replay_dead_letters as replay_dead_letters
    from icecdc_core.jobs.rollback import rollback_index as rollback_index
    from icecdc_core.jobs.status import status as status
    from icecdc_core.jobs.sync import sync_changes as sync_changes
    from icecdc_core.jobs.validate import validate_table as validate_table
    from icecdc_core.reporting.reports import RunReport as RunReport, ValidationReport as ValidationReport
    from icecdc_core.runs.wait import wait_for as wait_for
    from icecdc_core.session.spark import get_spark as get_spark

_MODULES = {
    "RunReport": "reporting.reports",
    "SyncConfig": "config",
    "ValidationReport": "reporting.reports",
    "export_table": "jobs.export",
    "get_spark": "session.spark",
    "plan_index": "jobs.plan",
    "replay_dead_letters": "jobs.replay",
    "rollback_index": "jobs.rollback",
    "status": "jobs.status",
    "sync_changes": "jobs.sync",
    "validate_table": "jobs.validate",
    "wait_for": "runs.wait",
}
__all__ = [*_MODULES]

if sys.modules.get("pyspark") is not None:
    import icecdc_core.session.compat  # noqa: F401 (it refuses a pyspark that is too old for the other modules)

if not TYPE_CHECKING:  # type checkers read the imports above, and so find a name that does not exist

    def __getattr__(name: str) -> object:
        """Import a name when it is first used (PEP 562), so that importing the package does not import Spark."""
        if name in _MODULES:
            return globals().setdefault(name, getattr(import_module(f"{__name__}.{_MODULES[name]}"), name))
        if name.isidentifier() and not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")  # icecdc_core.errors, after `import icecdc_core` alone
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
