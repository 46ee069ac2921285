"""The settings of a physical index: the user's over ours, and which of them would break a sync or a validation."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import AuthorizationException, NotFoundError, RequestError

from icecdc_core.config import SyncConfig
from icecdc_core.config.values import iterate_settings, parse_duration
from icecdc_core.documents.mapping import VECTOR, flatten_mapping
from icecdc_core.errors import ConfigError, SchemaChangeError
from icecdc_core.opensearch.checksums import PAGE_DOCUMENTS
from icecdc_core.opensearch.client import exception_reason

# An index template could have set the durability to async. OpenSearch remembers the version of a deleted document for
# as long as gc_deletes, by default a minute; it must be longer than any task can be delayed.
_SAFE = {"gc_deletes": "1h", "translog.durability": "request"}
# Settings that wait until the index is published, because an index that nobody reads needs none of them.
_WHEN_PUBLISHED = ("refresh_interval", "number_of_replicas", "auto_expand_replicas")


# What OpenSearch accepts and icecdc refuses when it is true: settings and groups of them, and the reason.
_REFUSED_IF_TRUE = {
    "derived_source": "`_source` would be made of the fields, which have less than the row",
    "knn.derived_source": "the vectors in `_source` would be made of the index, which rounds them",
}


def given_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's settings by their dotted names, without `index.`; null means the default."""
    return {name: value for name, value in iterate_settings(settings) if value is not None}


def check_settings(settings: Mapping[str, Any]) -> None:
    for name, value in given_settings(settings).items():
        text, reason = str(value).lower(), ""
        if name == "gc_deletes":
            seconds = parse_duration(text)
            if not isinstance(seconds, float) or seconds < 3600.0:
                reason = (
                    "below 1h, a late write could bring back a document whose deletion OpenSearch no longer remembers"
                )
        elif name == "translog.durability" and text != "request":
            reason = "a crash of the server could lose documents that icecdc has committed"
        elif name == "max_result_window" and text.isdecimal() and int(text) < PAGE_DOCUMENTS:
            reason = f"a validation reads {PAGE_DOCUMENTS} documents at a time"
        elif text == "true":
            reason = next((why for each, why in _REFUSED_IF_TRUE.items() if f"{name}.".startswith(f"{each}.")), "")
        if reason:
            raise ConfigError(
                f"The setting '{name}' cannot be {value!r}: {reason}",
                subject="settings",
                value={name: value},
                remedy="set another value, or leave it out (settings)",
            )


def vector_settings(client: OpenSearch, config: SyncConfig) -> dict[str, Any]:
    if all(field.get("type") != VECTOR for _, field in flatten_mapping(config.full_mapping)):
        return {}
    # From OpenSearch 3 on, `_source` otherwise has vectors that are made of the index.
    major = int(str(client.info()["version"]["number"]).partition(".")[0])
    return {"knn": True, **({"knn.derived_source.enabled": False} if major >= 3 else {})}


def new_index_settings(config: SyncConfig, needed: Mapping[str, Any], loading: bool) -> dict[str, Any]:
    """Return the settings of a new index; those of the user win over ours."""
    settings = {
        "number_of_shards": config.number_of_shards,
        "number_of_replicas": config.number_of_replicas,
        **_SAFE,
        **needed,
        **given_settings(config.settings),
    }
    if loading:
        settings = {name: value for name, value in settings.items() if name not in _WHEN_PUBLISHED}
        settings |= {"number_of_replicas": 0, "refresh_interval": "-1"}
    return settings


def published_settings(config: SyncConfig) -> dict[str, Any]:
    """Return the settings that an index gets when readers see it; null resets one to OpenSearch's default."""
    given = given_settings(config.settings)
    ours = {"number_of_replicas": config.number_of_replicas, "refresh_interval": None}
    return {**ours, **{name: given[name] for name in _WHEN_PUBLISHED if name in given}}


def change_settings(client: OpenSearch, config: SyncConfig, physical: str, changed: Mapping[str, Any]) -> None:
    """Change settings of an index that readers see; one that is gone (null) has our value again."""
    if not changed:
        return
    ours = {**_SAFE, "number_of_replicas": config.number_of_replicas}
    settings = {name: ours.get(name) if value is None else value for name, value in changed.items()}
    with definition_errors(config):
        try:
            client.indices.put_settings(index=physical, body={"index": settings})
        except RequestError as error:
            if not re.search("non dynamic|final index setting", reason := exception_reason(error)):
                raise
            raise not_in_place_error(f"The settings of index '{physical}' cannot be changed: {reason}") from error


def not_in_place_error(problem: str) -> SchemaChangeError:
    return SchemaChangeError(
        problem,
        subject="on_schema_change",
        value="fail",
        remedy="run the export (it builds a new index), or set on_schema_change=reexport",
    )


def named_pipelines(config: SyncConfig) -> list[str]:
    given = given_settings(config.settings)
    return [str(given[kind]) for kind in ("default_pipeline", "final_pipeline") if given.get(kind, "_none") != "_none"]


def require_pipelines(client: OpenSearch, config: SyncConfig) -> None:
    """Check that the server has the ingest pipelines of the user's settings: without them it rejects every document."""
    for name in named_pipelines(config):
        try:
            client.ingest.get_pipeline(id=name)
        except AuthorizationException:
            continue  # the user may not ask
        except NotFoundError as error:
            raise ConfigError(
                f"The server has no ingest pipeline '{name}'",
                subject="settings",
                value=name,
                remedy=f"create it (PUT /_ingest/pipeline/{name}), or correct default_pipeline and final_pipeline",
            ) from error


@contextmanager
def definition_errors(config: SyncConfig) -> Iterator[None]:
    try:
        yield
    except RequestError as error:
        # Only the text says whether another refusal is about the mapping or the settings; both come from one request.
        is_mapping = error.error == "mapper_parsing_exception"
        subject = "mapping" if is_mapping or not config.settings else "settings"
        is_known = is_mapping or error.error in ("illegal_argument_exception", "settings_exception", "parse_exception")
        if not (value := getattr(config, subject)) or not is_known:
            raise
        raise ConfigError(
            f"OpenSearch refuses the {subject} of the index: {exception_reason(error)}",
            subject=subject,
            value=value,
            remedy=f"correct {subject}, or install the plugin that it needs",
        ) from error
