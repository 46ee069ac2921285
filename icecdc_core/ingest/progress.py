"""The metrics of a continuous ingest, published while it runs, because its end may be far away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from icecdc_core.errors import IcecdcError
from icecdc_core.reporting.instrumentation import publish_run_metrics
from icecdc_core.reporting.metrics import ProgressMetrics
from icecdc_core.reporting.monitoring.observers import telemetry_is_configured

if TYPE_CHECKING:
    from icecdc_core.ingest.batches import Batches
    from icecdc_core.ingest.config import IngestConfig

SECONDS_BETWEEN = 15.0


class Progress:
    """Publishes how far a run is, at most every 15 seconds."""

    def __init__(self, config: IngestConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._is_on = config.trigger == "continuous"
        self._due = clock()

    def publish(self, batches: Batches, written: Mapping[str, Any]) -> None:
        """Publish if it is time. It must not run while a batch does, because it asks Kafka for the topics' ends."""
        if not self._is_on or self._clock() < self._due:
            return
        self._due = self._clock() + SECONDS_BETWEEN
        config = self._config
        if not (config.metrics_folder or config.metrics_url or telemetry_is_configured()):
            return
        try:
            through = batches.complete_through()
        except IcecdcError:  # a batch will say what is wrong with Kafka
            through = None
        facts = {**written, "tables_behind": len(batches.behind)}
        if through is not None:
            facts["complete_through"] = through.timestamp()
        publish_run_metrics(ProgressMetrics({"job": "ingest", **config.subject}, facts), config)
