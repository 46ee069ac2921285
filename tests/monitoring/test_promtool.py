"""The alert rules and the dashboard's queries in Prometheus' own promtool: SUITE=monitoring.

It must be on the PATH, or in the folder ICECDC_PROMETHEUS.
"""

import json
import os
import shutil
import subprocess

from tests.unit.reporting.test_metrics import FOLDER, QUERIES


def promtool(*arguments):
    found = shutil.which("promtool", path=os.environ.get("ICECDC_PROMETHEUS")) or shutil.which("promtool")
    assert found, "promtool is missing: install Prometheus, or name its folder in ICECDC_PROMETHEUS"
    subprocess.run([found, *arguments], cwd=FOLDER, check=True)


def it_accepts_the_rules_and_the_queries_of_the_dashboard(tmp_path):
    texts = [expression.replace("$index", "orders|raw") for _, expression in QUERIES]
    rules = [{"record": f"query_{number}", "expr": text} for number, text in enumerate(texts)]
    (tmp_path / "queries.json").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", "alerts.yml", str(tmp_path / "queries.json"))


def it_fires_each_alert_when_it_must_and_not_otherwise():
    promtool("test", "rules", "alerts_test.yml")
