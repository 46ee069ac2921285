"""The settings of a physical index: the user's over ours, and which of them would break a sync or a validation; pure.

A setting may be nested or dotted, with or without `index.`: `{"index": {"translog": {"sync_interval": "5s"}}}` is
`{"translog.sync_interval": "5s"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from opensearchpy import OpenSearch
from opensearchpy.exceptions import AuthorizationException, NotFoundError, RequestError

from icecdc_core.config.values import UNIT_SECONDS, iterate_leaves, parse_seconds
from icecdc_core.documents.mapping import VECTOR, has_field_type
from icecdc_core.errors import ConfigError
from icecdc_core.opensearch.pages import PAGE_DOCUMENTS

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


# How long OpenSearch remembers the version of a deleted document. A write that arrives later could bring the document
# back, so this must be longer than any task can be delayed; OpenSearch's default is one minute.
_GC_DELETES_SECONDS = 3600.0
_UNITS = {"nanos": 1e-9, "micros": 1e-6, **UNIT_SECONDS}
# An index template could have set the durability to async.
_SAFE = {"gc_deletes": "1h", "translog.durability": "request"}
# Settings that wait until the index is published, because an index that nobody reads needs none of them.
_WHEN_PUBLISHED = ("refresh_interval", "number_of_replicas", "auto_expand_replicas")

_SLICES = "max_slices_per_pit"


class _Rule(NamedTuple):
    """A setting, or all that begin with it and a dot; which values are refused; why; and the remedy."""

    name: str
    is_refused: Callable[[Any], bool]
    reason: str
    remedy: str


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"


def _is_short(value: Any) -> bool:
    seconds = parse_seconds(str(value), _UNITS)
    return seconds is None or seconds < _GC_DELETES_SECONDS


def _is_below_page(value: Any) -> bool:
    text = str(value).strip()
    return text.isdecimal() and int(text) < PAGE_DOCUMENTS


_RULES = (
    _Rule(
        "gc_deletes",
        _is_short,
        "a late write could bring back a document whose deletion OpenSearch no longer remembers",
        "set it to 1h or longer, or leave it out",
    ),
    _Rule(
        "translog.durability",
        lambda value: str(value).lower() != "request",
        "a crash of the server could lose documents that icecdc has committed",
        "leave it out; to write faster, raise bulk_bytes or bulk_connections",
    ),
    _Rule("blocks", _is_true, "a blocked index accepts no documents", "leave it out"),
    _Rule("append_only", _is_true, "an append-only index accepts neither updates nor deletes", "leave it out"),
    _Rule(
        "derived_source",
        _is_true,
        "OpenSearch would make `_source` again from the fields, and the index has less than the row",
        "leave it out; validation needs the document as it was written",
    ),
    _Rule(
        "knn.derived_source",
        _is_true,
        "OpenSearch would make the vectors in `_source` again from the index, which rounds them",
        "leave it out; validation needs the document as it was written",
    ),
    _Rule(
        "routing_partition_size",
        lambda value: str(value) != "1",
        "it needs a routing, and documents have none",
        "leave it out",
    ),
    _Rule(
        "hidden",
        _is_true,
        "wildcards do not find hidden indexes, and icecdc finds those of earlier exports by a wildcard",
        "leave it out",
    ),
    _Rule(
        "max_result_window",
        _is_below_page,
        f"the validation reads pages of {PAGE_DOCUMENTS} documents",
        f"set it to {PAGE_DOCUMENTS} or more, or leave it out",
    ),
)


def flat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's settings by their dotted names, without `index.`; null means the default."""
    found: dict[str, Any] = {}
    for path, value in iterate_leaves(settings):
        name = path.removeprefix("index.")
        if name in found:
            raise _settings_error(
                f"The setting '{name}' is given twice", name, "give it once; index. makes no difference"
            )
        found[name] = value
    return {name: value for name, value in found.items() if value is not None}


def check_settings(settings: Mapping[str, Any], number_of_shards: int = 1) -> None:
    """Check that the user's settings break neither sync nor validation."""
    given = flat_settings(settings)
    slices, shards = (str(given.get(name, "")) for name in (_SLICES, "number_of_shards"))
    if slices.isdecimal() and int(slices) < (int(shards) if shards.isdecimal() else number_of_shards):
        raise _settings_error(
            f"The setting '{_SLICES}' cannot be {slices}: the validation reads each shard as a slice",
            {_SLICES: slices},
            "set it to the number of shards or more, or leave it out (settings)",
        )
    for name, value in given.items():
        for rule in _RULES:
            if (name == rule.name or name.startswith(f"{rule.name}.")) and rule.is_refused(value):
                raise _settings_error(
                    f"The setting '{name}' cannot be {value!r}: {rule.reason}",
                    {name: value},
                    f"{rule.remedy} (settings)",
                )


def new_index_settings(
    config: SyncConfig, needed: Mapping[str, Any], loading: bool, server_major: int | None = None
) -> dict[str, Any]:
    """Return the settings of a new index; those of the user win over ours."""
    given = flat_settings(config.settings)
    settings = {
        "number_of_shards": config.number_of_shards,
        "number_of_replicas": config.number_of_replicas,
        **_SAFE,
        **needed,
        **({} if server_major is None else _vector_settings(given, server_major)),
        **given,
    }
    if loading:
        settings = {name: value for name, value in settings.items() if name not in _WHEN_PUBLISHED}
        settings |= {"number_of_replicas": 0, "refresh_interval": "-1"}
    return settings


def published_settings(config: SyncConfig) -> dict[str, Any]:
    """Return the settings that an index gets when readers see it; null resets one to OpenSearch's default."""
    given = flat_settings(config.settings)
    ours = {"number_of_replicas": config.number_of_replicas, "refresh_interval": None}
    return {**ours, **{name: given[name] for name in _WHEN_PUBLISHED if name in given}}


def settings_in_place(config: SyncConfig, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return changed settings of an index that readers see; one that is gone has our value again."""
    ours = {**_SAFE, "number_of_replicas": config.number_of_replicas}
    return {name: ours.get(name) if value is None else value for name, value in changed.items()}


def pipelines(settings: Mapping[str, Any]) -> list[str]:
    """Return the ingest pipelines that the user's settings name."""
    given = flat_settings(settings)
    names = (str(given.get(name, "_none")) for name in ("default_pipeline", "final_pipeline"))
    return sorted({name for name in names if name != "_none"})


def _vector_settings(given: Mapping[str, Any], server_major: int) -> dict[str, Any]:
    if not _is_true(given.get("knn", True)):
        return {}
    # From OpenSearch 3 on, `_source` otherwise has vectors that are made again from the index.
    return {"knn": True, **({"knn.derived_source.enabled": False} if server_major >= 3 else {})}


def _settings_error(message: str, value: object, remedy: str) -> ConfigError:
    return ConfigError(message, subject="settings", value=value, remedy=remedy)


_KNN_PLUGIN = "opensearch-knn"
_OTHER_REFUSALS = ("illegal_argument_exception", "settings_exception", "parse_exception")


def require_server_features(client: OpenSearch, config: SyncConfig) -> None:
    """Check that the server has what the user's mapping and settings need: the k-NN plugin and ingest pipelines.

    A user who may not ask for plugins or pipelines is not refused: OpenSearch itself refuses what it lacks.
    """
    if has_field_type(config.mapping, VECTOR) and not _has_plugin(client, _KNN_PLUGIN):
        raise _no_vectors_error()
    missing = [name for name in pipelines(config.settings) if not _has_pipeline(client, name)]
    if missing:
        raise ConfigError(
            f"The server has no ingest pipeline '{missing[0]}'",
            subject="settings",
            value=missing,
            remedy=f"create it (PUT /_ingest/pipeline/{missing[0]}), or correct default_pipeline and final_pipeline",
        )


@contextmanager
def definition_errors(config: SyncConfig) -> Iterator[None]:
    """Turn a refusal of the user's mapping or settings into a typed error."""
    try:
        yield
    except RequestError as error:
        if (typed := _definition_error(error, config)) is None:
            raise
        raise typed from error


def error_reason(error: RequestError) -> str:
    """Return the reason that OpenSearch gives, with its cause."""
    details: Any = error.info.get("error") if isinstance(error.info, dict) else None
    if not isinstance(details, dict):
        return str(error)
    text, cause = str(details.get("reason")), details.get("caused_by")
    deeper = str(cause.get("reason")) if isinstance(cause, dict) else ""
    return f"{text} ({deeper})" if deeper and deeper not in text else text


def major_version(client: OpenSearch) -> int:
    """Return the server's major version."""
    return int(str(client.info()["version"]["number"]).partition(".")[0])


def _definition_error(error: RequestError, config: SyncConfig) -> ConfigError | None:
    text, is_mapping = error_reason(error), error.error == "mapper_parsing_exception"
    if has_field_type(config.mapping, VECTOR) and (f"[{VECTOR}]" in text or "[index.knn]" in text):
        return _no_vectors_error()
    if not is_mapping and error.error not in _OTHER_REFUSALS:
        return None
    # Only the text says whether another refusal is about the mapping or the settings; both come from one request.
    subject = "mapping" if is_mapping or not config.settings else "settings"
    value = config.mapping if subject == "mapping" else config.settings
    if not value:
        return None
    return ConfigError(
        f"OpenSearch refuses the {subject} of the index: {text}",
        subject=subject,
        value=value,
        remedy=f"correct {subject}; the documentation of OpenSearch describes field types, their options and settings",
    )


def _has_plugin(client: OpenSearch, name: str) -> bool:
    try:
        nodes = client.nodes.info(metric="plugins").get("nodes", {})
    except AuthorizationException:
        return True
    return any(plugin.get("name") == name for node in nodes.values() for plugin in node.get("plugins", ()))


def _has_pipeline(client: OpenSearch, name: str) -> bool:
    try:
        client.ingest.get_pipeline(id=name)
    except NotFoundError:
        return False
    except AuthorizationException:
        return True
    return True


def _no_vectors_error() -> ConfigError:
    return ConfigError(
        f"The mapping has vectors ({VECTOR}), and the server has no k-NN plugin",
        subject="mapping",
        value=VECTOR,
        remedy=f"install {_KNN_PLUGIN} (the full distribution of OpenSearch has it), or leave the vectors out",
    )
