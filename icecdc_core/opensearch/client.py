"""The OpenSearch client: built from the parameters of a job; its exceptions become typed errors."""

from __future__ import annotations

import json
import logging
import random
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from opensearchpy import OpenSearch, Transport, Urllib3HttpConnection, exceptions
from opensearchpy.serializer import Deserializer
from urllib3.connection import HTTPSConnection

from icecdc_core import errors
from icecdc_core.logs import event
from icecdc_core.secrets import is_reference, resolve

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


_JSON = frozenset({"application/json", "application/vnd.elasticsearch+json"})
# What an answer must have, by the API in the path ("": an index). A list is about all elements, or all values of an
# object. Answers of a part of the shards are not usable, nor are changes that not every node has yet.
_DONE, _WHOLE = {"acknowledged": True}, {"failed": 0}
_INDEX = {"aliases": [dict], "mappings": dict, "settings": {"index": {"uuid": str, "creation_date": str}}}
_WRITTEN = {"_seq_no": int, "_primary_term": int}
_SHAPES: dict[str, Any] = {
    "/": {"version": {"number": str}},
    **dict.fromkeys(("", "_aliases", "_mapping", "_settings"), _DONE),
    "GET ": [_INDEX],
    "_doc": _WRITTEN,
    "GET _doc": {**_WRITTEN, "_source": dict},
    "_search": {"timed_out": False, "_shards": _WHOLE, "hits": {"hits": [{"_id": str}]}},
    "_count": {"_shards": _WHOLE, "count": int},
    "_refresh": {"_shards": _WHOLE},
    "_search_shards": {"shards": list},
    "_mget": {"docs": [{"_id": str}]},
    "POST point_in_time": {"_shards": _WHOLE, "pit_id": str},
}


class UnusableAnswerError(exceptions.TransportError):
    """The response is no answer of OpenSearch."""


def unusable_answer_error(problem: str, text: object = "", status: int = 200) -> UnusableAnswerError:
    beginning = text if isinstance(text, str) else json.dumps(text, default=str)
    # The error has no status, so that nobody mistakes it for a 404 of OpenSearch.
    return UnusableAnswerError("N/A", f"{problem} (HTTP status {status}): {beginning[:200]!r}", None)


@contextmanager
def reading(answer: Any) -> Iterator[None]:
    """Turn what a reader of an answer stumbles over into an unusable answer: all that the block reads is of it."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise unusable_answer_error(f"the answer is not what OpenSearch answers ({error!r})", answer) from error


class AnswerReader(Deserializer):
    """Reads answers only if they are JSON, several times faster than the client's own deserializer."""

    def __init__(self, parses: bool) -> None:
        self._parses = parses

    def loads(self, s: str, mimetype: str | None = None) -> Any:
        """Read an answer; one of a search stays a text if it is not to be parsed."""
        if mimetype and mimetype.partition(";")[0].strip() not in _JSON:
            raise unusable_answer_error(f"the answer is {mimetype}, not JSON", s)
        if not self._parses and s.endswith("]}}"):
            return s
        try:
            return orjson.loads(s)
        except orjson.JSONDecodeError:
            try:
                return json.loads(s)  # lone surrogates, which orjson refuses
            except (ValueError, RecursionError) as error:
                raise unusable_answer_error("the answer is no JSON", s) from error


@contextmanager
def _closed_as_without_tls() -> Iterator[None]:
    try:
        yield
    except ssl.SSLEOFError as error:
        raise BrokenPipeError(str(error)) from error


class _TlsConnection(HTTPSConnection):
    """Takes a closed connection as it is without TLS, not for a server that is not trusted, and reads its answer."""

    def connect(self) -> None:
        with _closed_as_without_tls():
            super().connect()

    def send(self, data: Any) -> None:
        with _closed_as_without_tls():
            super().send(data)


class AnswerConnection(Urllib3HttpConnection):
    """A connection that accepts only JSON objects as details of an error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.use_ssl:
            self.pool.ConnectionCls = _TlsConnection
        # opensearch-py leaves the client certificate out if it does not verify the server's.
        if options.get("client_cert"):
            self.pool.cert_file, self.pool.key_file = options["client_cert"], options.get("client_key")

    def _raise_error(self, status_code: int, raw_data: Any, content_type: str | None = None) -> None:
        try:
            # The error of a HEAD request has no body.
            is_object = isinstance(AnswerReader(True).loads(raw_data or "{}", content_type or "no JSON"), dict)
        except UnusableAnswerError:
            is_object = False
        # The page of another server must not pass for a status that says something about the content of the cluster.
        if not is_object and status_code in (404, 409):
            raise unusable_answer_error("the error is no JSON object", raw_data, status_code)
        super()._raise_error(status_code, raw_data, content_type if is_object else "text/plain")


def require_usable(method: str, path: str, answer: Any) -> None:
    """Check what an answer has; of a search that is still a text, only what comes before its hits."""
    if method == "HEAD":
        return
    if isinstance(answer, str):
        with suppress(ValueError):
            answer = {**json.loads(answer.partition(',"hits":')[0] + "}"), "hits": {"hits": []}}
    parts = path.partition("?")[0].strip("/").split("/")
    api = "point_in_time" if "point_in_time" in parts else next((part for part in parts if part[:1] == "_"), "")
    api = api if any(parts) else "/"
    if not isinstance(answer, dict) or not _fits(answer, _SHAPES.get(f"{method} {api}", _SHAPES.get(api, dict))):
        raise unusable_answer_error(f"the answer to {method} {api} is not what OpenSearch answers", answer)


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(name in value and _fits(value[name], shape[name]) for name in shape)
    if isinstance(shape, list):
        found = value.values() if isinstance(value, dict) else value
        return isinstance(value, dict | list) and all(_fits(each, shape[0]) for each in found)
    if isinstance(shape, type):
        return type(value) is shape
    return type(value) is type(shape) and bool(value == shape)


# Back-pressure and temporary trouble. Every other status says that the request itself is wrong.
RETRIED_STATUSES = frozenset({429, 502, 503, 504})


class Backoff:
    """Growing pauses between the attempts of one request, until some time has passed since its first failure."""

    def __init__(self, seconds: float, first_pause: float) -> None:
        self._seconds, self._pause, self._deadline = seconds, first_pause, 0.0

    def wait(self, message: str, **fields: Any) -> bool:
        """Log a failed attempt and pause, at random so that many clients do not return at once; False: time is over."""
        now = time.monotonic()
        self._deadline = self._deadline or now + self._seconds
        left = self._deadline - now
        if left <= 0:
            return False
        event(message, logging.WARNING, **fields, seconds_left=round(left, 1))
        time.sleep(min(self._pause, left) * random.uniform(0.5, 1.0))  # noqa: S311
        self._pause = min(self._pause * 2, 10.0)
        return True


class RetryingTransport(Transport):
    """Retries a request until it has failed for `retry_seconds`; every request of the driver may be repeated."""

    # Reads and settings have the same effect twice. Whoever moves an alias recognizes that its earlier request has
    # moved it. Positions are written under a condition that distinguishes a repetition from the write of another run.

    def __init__(self, *args: Any, retry_seconds: float = 0.0, parses: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.retry_seconds = retry_seconds
        self.deserializer = AnswerReader(parses)

    def perform_request(self, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        backoff = Backoff(self.retry_seconds, first_pause=0.25)
        while True:
            try:
                # The client takes its own options, such as the timeout, out of the parameters that it is given.
                again = {**kwargs, "params": dict(kwargs["params"])} if kwargs.get("params") else kwargs
                answer = super().perform_request(method, url, *args, **again)
                require_usable(method, url, answer)
                return answer
            except exceptions.TransportError as error:
                request = f"{method} {url.partition('?')[0]}"
                if not is_transient(error) or not backoff.wait(
                    "OpenSearch gave no usable answer; retrying the request", request=request, status=error.status_code
                ):
                    raise


@contextmanager
def without_retries(client: OpenSearch) -> Iterator[None]:
    transport: Any = client.transport
    before = getattr(transport, "retry_seconds", 0.0)
    transport.retry_seconds = 0.0
    try:
        yield
    finally:
        transport.retry_seconds = before


def is_transient(error: Exception) -> bool:
    if isinstance(error, (exceptions.ConnectionError, UnusableAnswerError)):
        return not isinstance(error, exceptions.SSLError)
    return isinstance(error, exceptions.TransportError) and error.status_code in RETRIED_STATUSES


_FILES = ("ca_certs", "client_cert", "client_key")


@dataclass(frozen=True)
class Connection:
    """How to reach OpenSearch. It travels to the executors with the resolved password, which is never printed."""

    url: str
    username: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    aws_region: str = ""

    @classmethod
    def of(cls, config: SyncConfig) -> Connection:
        options: dict[str, Any] = {"timeout": config.request_timeout_seconds}
        if config.opensearch_username:
            name = config.opensearch_username
            name = resolve(name, "opensearch_username") if is_reference(name) else name
            login = f"{name}:{resolve(config.opensearch_password, 'opensearch_password')}"
            # OpenSearch reads UTF-8, but `http_auth` sends Latin-1.
            encoded = b64encode(login.encode(errors="surrogateescape")).decode()
            options["headers"] = {"authorization": f"Basic {encoded}"}
        if config.opensearch_url.startswith("https"):
            # Who chose not to verify needs no warning of urllib3 in every process.
            options |= {"verify_certs": config.opensearch_verify_certs, "ssl_show_warn": False}
            files = {name: getattr(config, f"opensearch_{name}") for name in _FILES}
            options |= {name: path for name, path in files.items() if path}
        return cls(config.opensearch_url, config.opensearch_username, options, config.opensearch_aws_region)

    def client(self, connections: int = 4, retry_seconds: float = 0.0, parses: bool = True) -> OpenSearch:
        for name in self.options.keys() & {*_FILES}:
            try:
                Path(self.options[name]).open("rb").close()
            except OSError as error:
                raise errors.ConfigError(
                    f"The file cannot be read: {error.strerror}",
                    subject=f"opensearch_{name}",
                    value=self.options[name],
                    remedy="set it to a PEM file that the driver and the executors can read",
                ) from error
        signer = {}
        if self.aws_region:
            try:
                import botocore.session
                from opensearchpy import Urllib3AWSV4SignerAuth
            except ImportError as error:
                raise errors.DependencyError(
                    "Signing requests for AWS needs the package botocore",
                    subject="opensearch_aws_region",
                    value=self.aws_region,
                    remedy='pip install "icecdc[aws]" on the driver and the executors',
                ) from error
            # The driver and each executor find their own, so that none travel.
            credentials = botocore.session.get_session().get_credentials()
            if credentials is None:
                raise errors.SecretError(
                    "No AWS credentials were found",
                    subject="opensearch_aws_region",
                    value=self.aws_region,
                    remedy="give driver and executors a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
                    "on them",
                )
            signer["http_auth"] = Urllib3AWSV4SignerAuth(credentials, self.aws_region, "es")
        # opensearch-py does not ask the system, and takes SSL_CERT_DIR, a folder, for a file.
        authorities = ssl.get_default_verify_paths().cafile  # without one it asks certifi
        return OpenSearch(
            self.url,
            **{"timeout": 60.0, "ca_certs": authorities, **self.options, **signer},
            maxsize=connections,
            max_retries=0,
            transport_class=RetryingTransport,
            connection_class=AnswerConnection,
            retry_seconds=retry_seconds,
            parses=parses,
        )


@contextmanager
def typed_errors(config: SyncConfig, doing: str) -> Iterator[None]:
    try:
        yield
    except exceptions.OpenSearchException as error:
        raise typed_error(error, config.opensearch_url, doing, config.opensearch_username) from error


def typed_error(error: exceptions.OpenSearchException, url: str, doing: str, username: str = "") -> errors.IcecdcError:
    reason = exception_reason(error)
    # Of a full disk, for example.
    is_block = isinstance(error, exceptions.TransportError) and str(error.error).endswith("block_exception")
    if isinstance(error, (exceptions.AuthenticationException, exceptions.AuthorizationException)) and not is_block:
        return errors.OpenSearchAuthError(
            f"OpenSearch refused the user or its permissions ({doing}, {url}): {reason}",
            subject="opensearch_username",
            value=username or None,
            remedy="check opensearch_username, the secret behind opensearch_password, and the role's permissions",
        )
    if isinstance(error, exceptions.SSLError):
        return errors.OpenSearchUnreachableError(
            f"No trusted TLS connection to OpenSearch ({doing}): {reason}",
            subject="opensearch_ca_certs",
            remedy="set opensearch_ca_certs to the file with the server's CA; check the host name in the URL",
        )
    if isinstance(error, (exceptions.ConnectionError, UnusableAnswerError)) or (
        isinstance(error, exceptions.TransportError) and error.status_code == 503
    ):
        return errors.OpenSearchUnreachableError(
            f"Cannot connect to OpenSearch ({doing}): {reason}",
            subject="opensearch_url",
            value=url,
            remedy="check the URL, that the cluster runs, and the proxy or gateway in front of it",
        )
    return errors.OpenSearchRequestError(
        f"OpenSearch refused a request ({doing}): {reason}",
        subject="opensearch_url",
        value=url,
        remedy="see the reason in this message; the log of the cluster has the details",
    )


def exception_reason(error: exceptions.OpenSearchException) -> str:
    if not isinstance(error, exceptions.TransportError):
        return str(error)
    details = error.info.get("error") if isinstance(error.info, dict) else None
    return f"{error.status_code} {error_reason(details) if isinstance(details, dict) else error.error}"


def error_reason(details: dict[str, Any]) -> str:
    text = f"{details.get('type')}: {details.get('reason')}"
    deeper = details.get("caused_by") or details.get("root_cause")
    deeper = deeper[0] if deeper and isinstance(deeper, list) else deeper
    cause = str(deeper.get("reason") or "") if isinstance(deeper, dict) else ""
    return text if cause in text else f"{text} ({cause})"
