"""Reads schemas from a Confluent-compatible schema registry, by the schema IDs in the records."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_chain, wait_fixed

from icecdc_core.errors import ConfigError, SchemaRegistryError

_ACCEPT = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = frozenset({40401, 40402, 40403})
"""The registry's error codes for an unknown subject, version and schema."""
_TIMEOUT_SECONDS = 15.0
_RETRY_SECONDS = (0.5, 2.0)


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema in the registry."""

    kind: str
    text: str
    references: dict[str, RegisteredSchema] = field(default_factory=dict)


class SchemaRegistry:
    """The schema registry at a URL; it is asked for each schema once.

    The two requests are part of Confluent's REST API, which Karapace and Apicurio (under ``/apis/ccompat/v7``) support
    too: ``GET /schemas/ids/{id}`` and, for references, ``GET /subjects/{subject}/versions/{version}``.
    """

    def __init__(
        self,
        url: str,
        auth: str = "",
        known: dict[int, RegisteredSchema] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(
                "The format needs a schema registry",
                subject="schema_registry_url",
                value=url,
                remedy="set its URL, http(s)://host:port",
            )
        parts = urlsplit(url)
        user_info, _, host = parts.netloc.rpartition("@")
        self._url, self._sleep = parts._replace(netloc=host).geturl().rstrip("/"), sleep
        auth = auth or unquote(user_info)
        self._headers = {"Accept": _ACCEPT}
        if auth:
            self._headers["Authorization"] = "Basic " + base64.b64encode(auth.encode()).decode()
        self._known = {} if known is None else known

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return a schema with its references; None if the registry does not have it."""
        if schema_id not in self._known:
            answer = self._get(f"/schemas/ids/{schema_id}")
            if answer is None:
                return None
            self._known[schema_id] = self._registered(answer)
        return self._known[schema_id]

    def _registered(self, answer: dict[str, Any]) -> RegisteredSchema:
        references: dict[str, RegisteredSchema] = {}
        for reference in answer.get("references") or []:
            path = f"/subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}"
            referenced = self._get(path)
            if referenced is None:
                raise SchemaRegistryError(
                    "A schema refers to a schema that the registry does not have",
                    subject=reference["subject"],
                    value=reference["version"],
                    remedy="register the schema again, or restore the registry's topic",
                )
            other = self._registered(referenced)
            references.update(other.references)
            references[reference["name"]] = other
        return RegisteredSchema(answer.get("schemaType") or "AVRO", answer["schema"], references)

    def _get(self, path: str) -> dict[str, Any] | None:
        attempts = Retrying(
            retry=retry_if_exception(_is_transient),
            wait=wait_chain(*map(wait_fixed, _RETRY_SECONDS)),
            stop=stop_after_attempt(len(_RETRY_SECONDS) + 1),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return attempts(self._request, path)
        except HTTPError as error:
            if error.code == 404 and _code(error) in _NOT_FOUND:
                return None
            raise self._error(f"The schema registry rejects the request: {error}", path) from error
        except (OSError, ValueError) as error:
            raise self._error(f"Cannot read from the schema registry: {error}", path) from error

    def _request(self, path: str) -> dict[str, Any]:
        with urlopen(Request(self._url + path, headers=self._headers), timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            answer: dict[str, Any] = json.loads(response.read())
            return answer

    def _error(self, message: str, path: str) -> SchemaRegistryError:
        return SchemaRegistryError(
            message,
            subject="schema_registry_url",
            value=self._url + path,
            remedy="check the URL, the credentials and the registry itself; nothing of the batch was written",
        )


def _is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, HTTPError):
        return error.code >= 500 or error.code == 429
    return isinstance(error, (OSError, ValueError))


def _code(error: HTTPError) -> int:
    try:
        return int(json.loads(error.read()).get("error_code", 0))
    except (ValueError, AttributeError, OSError):
        return 0
