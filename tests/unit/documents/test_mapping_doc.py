"""The examples of the documentation are accepted as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pyspark.sql import types as T

from icecdc_core.documents.mapping import index_mapping
from icecdc_core.opensearch.index_settings import check_settings

DOCS = Path(__file__).parents[3] / "docs"
POINT = T.StructType().add("lat", T.DoubleType()).add("lon", T.DoubleType())
SCHEMA = (
    T.StructType()
    .add("title", T.StringType())
    .add("status", T.StringType())
    .add("place", T.StructType().add("pin", POINT))
    .add("people", T.ArrayType(T.StructType().add("name", T.StringType())))
    .add("embedding", T.ArrayType(T.FloatType()))
)


def it_accepts_every_example():
    section = (
        (DOCS / "indexes.md").read_text(encoding="utf-8").partition("## Mapping and settings")[2].partition("\n## ")[0]
    )
    examples = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", section, re.DOTALL)]
    for example in examples:
        index_mapping(SCHEMA, example["mapping"], example.get("pipeline_fields", []))
        check_settings(example["settings"])
    assert len(examples) == 2
