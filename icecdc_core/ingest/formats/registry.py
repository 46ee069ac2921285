"""Reads schemas from a Confluent-compatible schema registry, by the schema IDs in the records."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_chain, wait_fixed

from icecdc_core.errors import SchemaRegistryError

_ACCEPT = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = frozenset({40401, 40402, 40403})
"""The registry's error codes for an unknown subject, version and schema."""
_TRANSIENT = (429, *range(500, 600))
_HIGHEST_ID = (1 << 31) - 1
_MISSING = "the schema registry has no"
_TIMEOUT_SECONDS = 15.0
_RETRY_SECONDS = (0.5, 2.0)


@dataclass(frozen=True)
class RegisteredSchema:
    kind: str
    text: str
    references: dict[str, RegisteredSchema] = field(default_factory=dict)


class SchemaRegistry:
    """The schema registry at a URL, by Confluent's REST API; it is asked for each schema once."""

    def __init__(
        self,
        url: str,
        auth: str = "",
        known: dict[int, RegisteredSchema] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url, self._sleep = url.rstrip("/"), sleep
        self._headers = {"Accept": _ACCEPT}
        if auth:
            self._headers["Authorization"] = "Basic " + base64.b64encode(auth.encode()).decode()
        self._known = {} if known is None else known

    def schema(self, schema_id: int) -> RegisteredSchema | str:
        """Return a schema with its references; if the registry lacks one of them, a text that says which."""
        if schema_id in self._known:
            return self._known[schema_id]
        name = f"schema {schema_id}"
        if schema_id > _HIGHEST_ID:  # the registry would answer as for a wrong URL
            return f"{_MISSING} {name}"
        found = self._read(f"/schemas/ids/{schema_id}", name)
        if isinstance(found, RegisteredSchema):
            self._known[schema_id] = found
        return found

    def _read(self, path: str, name: str) -> RegisteredSchema | str:
        answer = self._get(path)
        if answer is None:
            return f"{_MISSING} {name}"
        references: dict[str, RegisteredSchema] = {}
        for reference in answer.get("references") or []:
            subject, version = reference["subject"], reference["version"]
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            other = self._read(path, f"version {version} of subject {subject}")
            if isinstance(other, str):
                return f"{other}, to which {name} refers"
            references.update(other.references)
            references[reference["name"]] = other
        return RegisteredSchema(answer.get("schemaType") or "AVRO", answer["schema"], references)

    def _get(self, path: str) -> dict[str, Any] | None:
        attempts = Retrying(
            retry=retry_if_exception(lambda error: not isinstance(error, HTTPError) or error.code in _TRANSIENT),
            wait=wait_chain(*map(wait_fixed, _RETRY_SECONDS)),
            stop=stop_after_attempt(len(_RETRY_SECONDS) + 1),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return attempts(self._request, path)
        except (OSError, ValueError) as error:  # an HTTPError is an OSError
            what = "rejects the request" if isinstance(error, HTTPError) else "cannot be read"
            raise SchemaRegistryError(
                f"The schema registry {what}: {error}",
                subject="schema_registry_url",
                value=self._url + path,
                remedy="check the URL, the credentials and the registry itself; nothing of the batch was written",
            ) from error

    def _request(self, path: str) -> dict[str, Any] | None:
        try:
            with urlopen(Request(self._url + path, headers=self._headers), timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
                answer: Any = json.loads(response.read())
        except HTTPError as error:
            with suppress(ValueError, AttributeError, OSError):
                if error.code == 404 and json.loads(error.read()).get("error_code") in _NOT_FOUND:
                    return None
            raise
        if not isinstance(answer, dict) or "schema" not in answer:
            raise ValueError("the answer is no schema")
        return answer
