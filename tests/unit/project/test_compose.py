"""The Docker services: what can be said about them without Docker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from icecdc_core.config import SyncConfig

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]


def _documented_catalog_properties() -> dict[str, str]:
    """The JSON of the comment at the top of the file."""
    comment = " ".join(line.removeprefix("#").strip() for line in TEXT.splitlines() if line.startswith("#"))
    found = re.search(r"catalog_properties\s+(\{.*?\})", comment)
    assert found
    properties: dict[str, str] = json.loads(found[1])
    return properties


@pytest.mark.parametrize("service", sorted(SERVICES))
class DescribeService:
    def it_is_pinned_to_a_version(self, service: str) -> None:
        assert re.search(r":\d+\.\d+[\w.]*$", SERVICES[service]["image"])

    def it_listens_on_loopback_only(self, service: str) -> None:
        assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[service]["ports"])


class DescribeDocumentedParameters:
    def it_is_what_the_configuration_takes(self) -> None:
        properties = _documented_catalog_properties()
        config = SyncConfig(table="lake.ns.t", catalog_properties=json.dumps(properties))
        assert dict(config.catalog_properties) == properties

    def it_names_what_the_services_publish_and_their_credentials(self) -> None:
        properties, store = _documented_catalog_properties(), SERVICES["s3"]
        published = {name: service["ports"][0].rpartition(":")[0] for name, service in SERVICES.items()}
        assert properties["uri"] == f"http://{published['catalog']}"
        assert properties["s3.endpoint"] == f"http://{published['s3']}"
        assert properties["s3.access-key-id"] == store["environment"]["AWS_ACCESS_KEY_ID"]
        assert properties["s3.secret-access-key"] == store["environment"]["AWS_SECRET_ACCESS_KEY"]
