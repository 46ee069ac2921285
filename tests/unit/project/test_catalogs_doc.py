"""The document on catalogs says what the code takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from icecdc_core import errors
from icecdc_core.config import SyncConfig
from icecdc_core.session.catalog import catalog_settings
from icecdc_core.session.jars import BUNDLES, ICEBERG_RUNTIMES, needed_bundles

TEXT = (Path(__file__).parents[3] / "docs" / "catalogs.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)
EXAMPLES = [
    pytest.param(section.split("\n")[0], example, id=f"{section.split(chr(10))[0]}-{number}")
    for section in SECTIONS
    for number, example in enumerate(re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL))
]


class DescribeAnExample:
    @pytest.mark.parametrize(("section", "example"), EXAMPLES)
    def it_is_what_the_configuration_takes(self, section, example):
        config = SyncConfig(table="lake.shop.orders", catalog_properties=example)
        assert dict(config.catalog_properties) == json.loads(example)

    @pytest.mark.parametrize(("section", "example"), EXAMPLES)
    def it_becomes_the_settings_of_a_catalog_with_its_secrets(self, section, example, monkeypatch):
        references = re.findall(r"env:(\w+)", example)
        for name in references:
            monkeypatch.setenv(name, f"the {name}")
        example = re.sub(r"secret:[\w/-]+", "env:DATABRICKS", example)
        monkeypatch.setenv("DATABRICKS", "the secret")
        settings = catalog_settings(SyncConfig(table="lake.shop.orders", catalog_properties=example))
        assert [value for value in settings.values() if value.startswith(("env:", "secret:"))] == []

    @pytest.mark.parametrize(("section", "example"), EXAMPLES)
    def it_shows_no_secret(self, section, example):
        shown = SyncConfig(table="lake.shop.orders", catalog_properties=example).redacted()["catalog_properties"]
        assert [key for key, value in shown.items() if value == "***"] == []

    @pytest.mark.parametrize(
        ("section", "example"),
        [each for each in EXAMPLES if each.values[0] in ("Glue", "S3 Tables", "Unity Catalog", "Polaris")],
    )
    def it_gets_the_jar_by_itself_where_the_document_says_so(self, section, example):
        assert len(needed_bundles(json.loads(example))) == 1


class DescribeTheDocument:
    def it_has_an_example_of_each_catalog(self):
        wanted = {"JDBC", "Hadoop", "REST", "Glue", "Hive", "Nessie", "S3 Tables", "Unity Catalog", "Polaris"}
        assert {section for section, _ in (each.values for each in EXAMPLES)} == wanted

    def it_names_the_bundles_in_the_versions_that_are_used(self):
        named = set(re.findall(r"iceberg-aws-bundle:([\d.]+)", TEXT)) | set(
            re.findall(r"\(([\d.]+) with Spark 4\.1", TEXT)
        )
        assert (named, [bundle for bundle in BUNDLES if bundle not in TEXT]) == (set(ICEBERG_RUNTIMES.values()), [])

    def it_names_errors_that_exist(self):
        named = set(re.findall(r"`(\w+Error)", TEXT))
        assert sorted(name for name in named if not hasattr(errors, name)) == []

    def it_links_to_its_own_sections(self):
        headings = {section.split("\n")[0].lower().replace(" ", "-") for section in SECTIONS}
        assert sorted(set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) - headings) == []
