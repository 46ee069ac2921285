"""Dashboard and alert rules use only metrics and labels that runs leave; SUITE=monitoring runs them for real."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from icecdc_core.ingest.report import IngestReport
from icecdc_core.reporting.metrics import RunMetrics
from icecdc_core.reporting.reports import RunReport, ValidationReport
from tests.metric_samples import text_of

FOLDER = Path(__file__).parents[3] / "docs" / "monitoring"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
LABELS = {"job": "sync", "table": "lake.ns.t", "index": "t"}
LAG = {"target_lag": 10.0, "lag_achieved": 2.5, "target_lag_kept": 60.0, "target_lag_missed": 1.5}

PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [*QUERIES, *((rule["alert"], rule["expr"]) for rule in RULES)]


def emitted() -> dict[str, dict[str, set[str]]]:
    """Every metric that reports of all kinds leave, with the values of its labels."""
    run = RunReport("sync", "lake.ns.t", "t", stage_seconds={"write": 1.0}, lag_snapshots=1, lag_seconds=2.0)
    reports = [run, ValidationReport(ok=True, source_rows=1, index_documents=1), IngestReport("t")]
    parts = [RunMetrics({**LABELS, **report.to_dict(), **LABELS}, 100.0) for report in reports]
    parts += [RunMetrics({**LABELS, **LAG, "complete_through": 1.0})]
    found: dict[str, dict[str, set[str]]] = {}
    for part in parts:
        for family in text_string_to_metric_families(text_of(part)):
            for sample in family.samples:
                for name, value in sample.labels.items():
                    found.setdefault(sample.name, {}).setdefault(name, set()).add(value)
    return found


METRICS = emitted()


def selectors(expression: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    found = re.findall(r"(icecdc_(?!job\b)\w+)(?:\{([^}]*)\})?", expression)
    return [(name, re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"', matchers)) for name, matchers in found]


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=[title for title, _ in EXPRESSIONS])
def it_uses_metrics_and_labels_that_runs_leave(title, expression):
    used = selectors(expression)
    unknown = [name for name, _ in used if name not in METRICS]
    labels = [(name, label) for name, matchers in used for label, _, _ in matchers if label not in METRICS[name]]
    assert (bool(used), unknown, labels) == (True, [], [])
