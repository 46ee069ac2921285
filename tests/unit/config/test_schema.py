"""The JSON schema of the index file accepts what SyncConfig accepts, and refuses what it refuses by itself."""

import json
from typing import Any

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError
from tests.index_file_schema import index_file_schema

GOOD: list[tuple[str, Any]] = [
    ("dry_run", "no"),
    ("catalog_properties", {"type": "rest", "ssl": True, "n": 3}),
    ("identifier_columns", ["a", "b"]),
    ("start_from", 4875243452),
]
BAD: list[tuple[str, Any]] = [
    *(("tabel", "a.b.c"), ("table", 3), ("opensearch_password", "hunter2"), ("identifier_columns", [1])),
    *(("catalog_properties", {"type": {"a": 1}}), ("mapping", ["a"]), ("change_mode", "gross"), ("bulk_bytes", 1)),
    *(("bulk_connections", 1.5), ("request_timeout_seconds", 0), ("max_indexes", 0)),
]

OTHER = {
    **{"branch": "dev", "dry_run": "true", "max_polls": "7", "poll_interval_seconds": "2.5", "change_mode": "snapshot"},
    **{"columns": "a,b", "settings": '{"a": 1}', "spark_conf": '{"a": "b"}', "target_lag": "5m",
        "start_from": "latest"},
}  # fmt: skip


def _file(name: str, value: Any) -> dict[str, Any]:
    return {"indexes": {"films": {"table": "lake.shop.film", name: value}}}


@pytest.fixture(scope="module")
def validator() -> Any:
    import jsonschema  # takes seconds, in every process that runs tests

    return jsonschema.Draft202012Validator(index_file_schema())


@pytest.mark.parametrize(("name", "given"), [*GOOD, *OTHER.items()])
def it_accepts_what_a_configuration_accepts_as_value_text_and_variable(validator, name, given):
    made = SyncConfig(**{"table": "lake.shop.film", name: given}).model_dump(mode="json")[name]
    for value in ("", given, made, "{ ${env:NAME}"):
        validator.validate(_file(name, value))


@pytest.mark.parametrize(
    "content",
    [
        *(_file(name, value) for name, value in BAD),
        {"indexes": {}},
        {"indexes": {"a": {}}},
        *({"indexes": {"a": {"table": "a.b.c"}}, **more}
          for more in ({"default": {}}, {"defaults": {"table": "a.b.c"}}, {"defaults": {"row_hash": "md5"}})),
    ],
)  # fmt: skip
def it_refuses_what_a_configuration_or_a_file_cannot_have(validator, content, tmp_path):
    assert not validator.is_valid(content)
    path = tmp_path / "indexes.yml"
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError):
        SyncConfig.load_all(path)
