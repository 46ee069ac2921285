"""docs/types.md says what the code does, type by type."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import functions as F

from icecdc_core.columns import UNFIT_IDENTIFIERS
from icecdc_core.documents.bulk_lines import document_json
from icecdc_core.documents.mapping import index_mapping

DOC = (Path(__file__).parents[3] / "docs" / "types.md").read_text(encoding="utf-8")
# Iceberg's type, and a value of the Spark type it is read as.
EXAMPLES = {
    "boolean": "true",
    "int": "7",
    "long": "9223372036854775807L",
    "float": "1.5F",
    "double": "1.5D",
    "decimal(9, 2)": "cast(1.5 as decimal(9, 2))",
    "date": "date'2026-01-31'",
    "timestamp": "timestamp_ntz'2026-01-31 12:00:00.5'",
    "timestamptz": "timestamp_micros(1769860800500000)",
    "string": "'a'",
    "uuid": "'f79c3e09-677c-4bbd-a479-3f349cb785e7'",
    "fixed[2]": "X'00FF'",
    "binary": "X'00FF'",
    "struct": "named_struct('x', 1, 'y', null)",
    "list": "array(1, null)",
    "map": "map('k', 1.5BD)",
    "variant": 'parse_json(\'{"b": 1.50, "a": [1]}\')',
    "unknown": "null",
}


def type_table(spark) -> str:
    """The types as the page's table; print it to renew the page."""
    df = spark.range(1).select(*(F.expr(sql).alias(kind) for kind, sql in EXAMPLES.items()))
    document = df.select(document_json(df.schema)).first()[0]
    values = json.loads(document)
    fields = index_mapping(df.schema)["properties"]
    rows = ["| Iceberg | In `_source`, for example | Mapping | Identifier |", "|---|---|---|---|"]
    for kind in EXAMPLES:
        mapped = f"`{fields[kind]['type']}`"
        mapped += " with `.keyword`" if "fields" in fields[kind] else ""
        mapped += "" if fields[kind].get("enabled", True) else ", not searchable"
        fit = "no" if isinstance(df.schema[kind].dataType, UNFIT_IDENTIFIERS) else "yes"
        rows.append(f"| {kind} | `{json.dumps(values[kind])}` | {mapped} | {fit} |")
    return "\n".join(rows)


def it_lists_every_type_as_the_code_has_it(spark):
    listed = DOC.split("<!-- types: begin -->")[1].split("<!-- types: end -->")[0]
    assert listed.strip() == type_table(spark)
