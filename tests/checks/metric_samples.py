"""The samples of metrics, as a Prometheus server reads them."""

import re

from prometheus_client import generate_latest

from icecdc_core.reporting.metrics import RunMetrics


def samples(text: str) -> dict[tuple[str, str], float]:
    found = re.findall(r'^(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)$', text, re.MULTILINE)
    assert len(found) == len([line for line in text.splitlines() if not line.startswith("#")])
    own = r'(?:table|index|icecdc_job|job)="(?:[^"\\]|\\.)*",?'
    return {(name, re.sub(own, "", labels).rstrip(",")): float(value) for name, labels, value in found}


def text_of(metrics: RunMetrics) -> str:
    return generate_latest(metrics).decode()


def samples_of(metrics: RunMetrics) -> dict[tuple[str, str], float]:
    return samples(text_of(metrics))
