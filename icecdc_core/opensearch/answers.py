"""Answers of OpenSearch: a JSON object with the fields that its API always returns.

Everything else (the page of a proxy, an empty body, truncated JSON) comes from another server or from a cluster in
trouble. It says nothing about the request, so it counts as no answer, and the request is retried.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import orjson
from opensearchpy import Urllib3HttpConnection
from opensearchpy.exceptions import SerializationError, TransportError
from opensearchpy.serializer import Deserializer, JSONSerializer

_JSON = frozenset({"application/json", "application/vnd.elasticsearch+json"})
# The field that an answer always has, by the name of the API in the path; "": creation and deletion of an index.
_REQUIRED_FIELDS = {
    "_search": "hits",
    "_doc": "_id",
    "_count": "count",
    "_refresh": "_shards",
    "_search_shards": "shards",
    "_aliases": "acknowledged",
    "_mapping": "acknowledged",
    "_settings": "acknowledged",
    "": "acknowledged",
}
# Statuses that say something about the content of the cluster. The page of another server must not pass for one.
_CONTENT_STATUSES = frozenset({404, 409})


class UnusableAnswerError(TransportError):
    """The response is no answer of OpenSearch."""


def unusable_answer_error(problem: str, text: object = "", status: int = 200) -> UnusableAnswerError:
    """Return the error for an unusable answer."""
    beginning = text if isinstance(text, str) else json.dumps(text, default=str)
    # The error has no status, so that nobody mistakes it for a 404 of OpenSearch.
    return UnusableAnswerError("N/A", f"{problem} (HTTP status {status}): {beginning[:200]!r}", None)


class AnswerConnection(Urllib3HttpConnection):
    """A connection that accepts only JSON objects as details of an error."""

    def _raise_error(self, status_code: int, raw_data: str | bytes, content_type: str | None = None) -> None:
        text = raw_data if isinstance(raw_data, str) else raw_data.decode(errors="replace")
        is_json = (content_type or "").partition(";")[0].strip() in _JSON
        details: object = None
        if is_json:
            # The error of a HEAD request has no body.
            with suppress(ValueError, RecursionError):
                details = json.loads(text or "{}")
        if isinstance(details, dict):
            super()._raise_error(status_code, text, content_type)
        if status_code in _CONTENT_STATUSES:
            raise unusable_answer_error("the error is no JSON object", text, status_code)
        super()._raise_error(status_code, text, "text/plain")


class FastAnswers(JSONSerializer):
    """Reads answers several times faster than the client's own serializer."""

    def loads(self, s: str) -> Any:
        """Read an answer."""
        try:
            return orjson.loads(s)
        except orjson.JSONDecodeError:
            # The standard library reads lone surrogates, which orjson refuses.
            return super().loads(s)


class AnswerDeserializer(Deserializer):
    """Reads answers only if they are JSON."""

    def loads(self, s: str, mimetype: str | None = None) -> Any:
        """Read an answer."""
        if mimetype and mimetype.partition(";")[0].strip() not in _JSON:
            raise unusable_answer_error(f"the answer is {mimetype}, not JSON", s)
        try:
            return self.default.loads(s)
        except (SerializationError, ValueError, RecursionError) as error:
            raise unusable_answer_error("the answer is no JSON", s) from error


def require_usable(method: str, path: str, answer: Any) -> None:
    """Check the content of an answer. An answer that a serializer left as text is checked by its reader."""
    if method == "HEAD" or (isinstance(answer, str) and answer):
        return
    if not isinstance(answer, dict):
        raise unusable_answer_error("the answer is no JSON object" if answer else "the answer is empty", answer or "")
    parts = path.partition("?")[0].strip("/").split("/")
    api = next((part for part in parts if part.startswith("_")), "")
    if parts == [""]:
        required = "version"
    elif parts[-1] == "point_in_time":
        required = "pit_id" if method == "POST" else "pits"
    elif method == "GET" and api in ("", "_alias", "_mapping", "_settings"):
        # These answers have one entry for each index.
        if not all(isinstance(entry, dict) for entry in answer.values()):
            raise unusable_answer_error("the answer has entries that are not indexes", answer)
        return
    else:
        required = _REQUIRED_FIELDS.get(api, "")
    if required and required not in answer:
        raise unusable_answer_error(f"the answer has no '{required}'", answer)
    if required == "hits" and not (isinstance(answer["hits"], dict) and isinstance(answer["hits"].get("hits"), list)):
        raise unusable_answer_error("the answer has no list of hits", answer)
