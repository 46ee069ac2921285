"""When a continuous ingest publishes its metrics, and what is in them."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from icecdc_core.errors import KafkaError
from icecdc_core.ingest.job import SECONDS_BETWEEN, Progress

THROUGH = datetime(2026, 11, 24, tzinfo=UTC)
WRITTEN = {"records": 5, "rows_written": 4, "dead_letters": 1, "tables": {}}


@pytest.fixture
def config(tmp_path):
    subject = {"table": "lake.raw", "index": "raw"}
    return SimpleNamespace(trigger="continuous", metrics_folder=str(tmp_path), metrics_url="", subject=subject)


def batches(complete_through=lambda: THROUGH):
    return SimpleNamespace(complete_through=complete_through, behind={"t": None})


def published(tmp_path):
    file = tmp_path / "icecdc-raw-ingest.prom"
    lines = file.read_text().splitlines() if file.exists() else []
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


class DescribeProgress:
    def it_publishes_counts_and_the_time_that_the_tables_have_reached(self, config, tmp_path):
        Progress(config, lambda: 0.0).publish(batches(), WRITTEN)
        assert published(tmp_path) == {
            "icecdc_ingest_records": 5,
            "icecdc_ingest_rows": 4,
            "icecdc_ingest_dead_letters": 1,
            "icecdc_ingest_tables_behind": 1,
            "icecdc_ingest_complete_through_timestamp_seconds": THROUGH.timestamp(),
        }

    def it_waits_between_two_times(self, config, tmp_path):
        now = [0.0]
        progress = Progress(config, lambda: now[0])
        seen = []
        for now[0], records in ((0.0, 1), (SECONDS_BETWEEN - 1, 2), (SECONDS_BETWEEN, 3)):
            progress.publish(batches(), {"records": records})
            seen.append(published(tmp_path)["icecdc_ingest_records"])
        assert seen == [1, 1, 3]

    def it_leaves_out_a_time_that_kafka_does_not_report(self, config, tmp_path):
        def away():
            raise KafkaError("away")

        Progress(config, lambda: 0.0).publish(batches(away), WRITTEN)
        assert "icecdc_ingest_complete_through_timestamp_seconds" not in published(tmp_path)

    @pytest.mark.parametrize("change", [{"trigger": "available_now"}, {"metrics_folder": ""}])
    def it_asks_kafka_nothing_if_nobody_wants_to_know(self, config, change):
        asked = []
        config = SimpleNamespace(**{**vars(config), **change})
        Progress(config, lambda: 0.0).publish(batches(lambda: asked.append(1)), WRITTEN)
        assert asked == []
