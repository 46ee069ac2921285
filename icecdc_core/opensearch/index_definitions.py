"""What the server says to the user's mapping and settings: which it refuses, and what it lacks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import AuthorizationException, NotFoundError, RequestError

from icecdc_core.documents.field_types import VECTOR, has_field_type
from icecdc_core.errors import ConfigError
from icecdc_core.opensearch.index_settings import pipelines

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig

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
