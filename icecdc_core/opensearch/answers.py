"""What counts as an answer of OpenSearch: a JSON object with what its API always gives.

Whatever else arrives (a proxy's page, an empty body, cut JSON) comes from something in between, or from a server in
trouble. It says nothing about the request, so it counts as no answer: the request is tried again.
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
# What an answer always has, by the API's name in the path; "" is the creation and the deletion of an index.
_FOUND = {
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
# Statuses that say something about what is in the cluster: here a page of somebody else must not pass for an answer.
_INFORMING = frozenset({404, 409})


class UnusableAnswerError(TransportError):
    """What arrived is no answer of OpenSearch."""


def unusable(what: str, text: object = "", status: int = 200) -> UnusableAnswerError:
    """The error for an answer with this HTTP status; ``what`` says what is wrong with it."""
    beginning = text if isinstance(text, str) else json.dumps(text, default=str)
    # No status of its own: nobody may take it for what a 404 of OpenSearch says.
    return UnusableAnswerError("N/A", f"{what} (HTTP status {status}): {beginning[:200]!r}", None)


class AnswerConnection(Urllib3HttpConnection):
    """A connection whose refusals have JSON objects for details, or none."""

    def _raise_error(self, status_code: int, raw_data: str | bytes, content_type: str | None = None) -> None:
        text = raw_data if isinstance(raw_data, str) else raw_data.decode(errors="replace")
        is_json = (content_type or "").partition(";")[0].strip() in _JSON
        details: object = None
        if is_json:
            # A HEAD request is refused without a body.
            with suppress(ValueError, RecursionError):
                details = json.loads(text or "{}")
        if isinstance(details, dict):
            super()._raise_error(status_code, text, content_type)
        if status_code in _INFORMING:
            raise unusable("the refusal is no JSON object", text, status_code)
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
    """Reads JSON only."""

    def loads(self, s: str, mimetype: str | None = None) -> Any:
        """Read an answer."""
        if mimetype and mimetype.partition(";")[0].strip() not in _JSON:
            raise unusable(f"the answer is {mimetype}, not JSON", s)
        try:
            return self.default.loads(s)
        except (SerializationError, ValueError, RecursionError) as error:
            raise unusable("the answer is no JSON", s) from error


def require_usable(method: str, path: str, answer: Any) -> None:
    """Check what was read from an answer; one that was left a text is the business of who asked for a text.

    Raises:
        UnusableAnswerError: It is not what OpenSearch answers to such a request.
    """
    if method == "HEAD" or (isinstance(answer, str) and answer):
        return
    if not isinstance(answer, dict):
        raise unusable("the answer is no JSON object" if answer else "the answer is empty", answer or "")
    parts = path.partition("?")[0].strip("/").split("/")
    api = next((part for part in parts if part.startswith("_")), "")
    if parts == [""]:
        wanted = "version"
    elif parts[-1] == "point_in_time":
        wanted = "pit_id" if method == "POST" else "pits"
    elif method == "GET" and api in ("", "_alias", "_mapping", "_settings"):
        # One entry for each index.
        if not all(isinstance(entry, dict) for entry in answer.values()):
            raise unusable("the answer has other entries than indexes", answer)
        return
    else:
        wanted = _FOUND.get(api, "")
    if wanted and wanted not in answer:
        raise unusable(f"the answer has no '{wanted}'", answer)
    if wanted == "hits" and not (isinstance(answer["hits"], dict) and isinstance(answer["hits"].get("hits"), list)):
        raise unusable("the answer has no list of hits", answer)
