"""The Docker services: what can be said about them without Docker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from icecdc_core.config import SyncConfig

TEXT = (Path(__file__).parents[3] / "compose.yaml").read_text(encoding="utf-8")
SERVICES = yaml.safe_load(TEXT)["services"]


@pytest.mark.parametrize("service", SERVICES)
def it_listens_on_loopback_only_in_a_pinned_version(service: str) -> None:
    assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[service]["ports"])
    assert re.search(r":\d+\.\d+[\w.]*$", SERVICES[service]["image"])


def it_documents_parameters_that_the_configuration_takes() -> None:
    comment = " ".join(line.removeprefix("#").strip() for line in TEXT.splitlines() if line.startswith("#"))
    properties = re.search(r"catalog_properties\s+(\{.*?\})", comment)[1]
    assert SyncConfig(table="lake.ns.t", catalog_properties=properties).catalog_properties == json.loads(properties)
