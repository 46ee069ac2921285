"""The OpenSearch client: built from the parameters of a job; its exceptions become typed errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import (
    AuthenticationException,
    AuthorizationException,
    ConnectionError,
    OpenSearchException,
    SSLError,
    TransportError,
)
from opensearchpy.serializer import Serializer

from icecdc_core.errors import ConfigError, OpenSearchAuthError, OpenSearchRequestError, OpenSearchUnreachableError
from icecdc_core.opensearch.answers import AnswerConnection, UnusableAnswerError
from icecdc_core.opensearch.aws import request_signer
from icecdc_core.opensearch.retry import RetryingTransport

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


@dataclass(frozen=True)
class Connection:
    """How to reach OpenSearch. It travels to the executors with the resolved password, which is never printed."""

    url: str
    username: str = ""
    password: str = field(default="", repr=False)
    ca_certs: str = ""
    verify_certs: bool = True
    timeout_seconds: float = 60.0
    client_cert: str = ""
    client_key: str = ""
    aws_region: str = ""
    aws_service: str = "es"
    user: str = field(default="", repr=False)

    @classmethod
    def of(cls, config: SyncConfig) -> Connection:
        """Return the connection of a job."""
        return cls(
            config.opensearch_url,
            config.opensearch_username,
            config.resolved_password(),
            config.opensearch_ca_certs,
            config.opensearch_verify_certs,
            config.request_timeout_seconds,
            config.opensearch_client_cert,
            config.opensearch_client_key,
            config.opensearch_aws_region,
            config.opensearch_aws_service,
            config.resolved_username(),
        )

    def client(self, connections: int = 4, retry_seconds: float = 0.0, answers: Serializer | None = None) -> OpenSearch:
        """Open a client."""
        options: dict[str, Any] = {
            "timeout": self.timeout_seconds,
            "maxsize": connections,
            "max_retries": 0,
            "transport_class": RetryingTransport,
            "connection_class": AnswerConnection,
            "retry_seconds": retry_seconds,
        }
        if answers is not None:
            options["serializers"] = {answers.mimetype: answers}
        if self.username:
            options["http_auth"] = (self.user or self.username, self.password)
        elif self.aws_region:
            options["http_auth"] = request_signer(self.aws_region, self.aws_service)
        if self.url.startswith("https"):
            options["verify_certs"] = self.verify_certs
            # The user chose verify_certs=False, so a warning of urllib3 in every process helps nobody.
            options["ssl_show_warn"] = False
            files = {"ca_certs": self.ca_certs, "client_cert": self.client_cert, "client_key": self.client_key}
            options |= {name: _readable(name, path) for name, path in files.items() if path}
        return OpenSearch(self.url, **options)


def _readable(name: str, path: str) -> str:
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise ConfigError(
            f"The file cannot be read: {error.strerror}",
            subject=f"opensearch_{name}",
            value=path,
            remedy="set it to a PEM file that the driver and the executors can read",
        ) from error
    return path


@contextmanager
def typed_errors(url: str, doing: str, username: str = "") -> Iterator[None]:
    """Turn the client's exceptions into typed errors."""
    try:
        yield
    except OpenSearchException as error:
        raise typed_error(error, url, doing, username) from error


def typed_error(error: OpenSearchException, url: str, doing: str, username: str = "") -> Exception:
    """Return the typed error for an exception of the client."""
    if isinstance(error, (AuthenticationException, AuthorizationException)):
        return OpenSearchAuthError(
            f"OpenSearch refused the user or its permissions ({doing}): {_reason(error)}",
            subject="opensearch_username",
            value=username or None,
            remedy="check opensearch_username, the secret behind opensearch_password, and the role's permissions",
        )
    if isinstance(error, SSLError):
        return OpenSearchUnreachableError(
            f"No trusted TLS connection to OpenSearch ({doing}): {_reason(error)}",
            subject="opensearch_ca_certs",
            remedy="set opensearch_ca_certs to the file with the server's CA; check the host name in the URL",
        )
    if isinstance(error, UnusableAnswerError):
        return OpenSearchUnreachableError(
            f"The answer is not OpenSearch's ({doing}): {error.error}",
            subject="opensearch_url",
            value=url,
            remedy="run again; if it happens again, check the URL, and the proxy or gateway in front of OpenSearch",
        )
    if isinstance(error, ConnectionError) or (isinstance(error, TransportError) and error.status_code == 503):
        return OpenSearchUnreachableError(
            f"Cannot connect to OpenSearch ({doing}): {_reason(error)}",
            subject="opensearch_url",
            value=url,
            remedy="check the URL, that the cluster runs, and that this machine can reach it",
        )
    return OpenSearchRequestError(
        f"OpenSearch refused a request ({doing}): {_reason(error)}",
        subject="opensearch_url",
        value=url,
        remedy="see the reason in this message; the log of the cluster has the details",
    )


def _reason(error: OpenSearchException) -> str:
    if not isinstance(error, TransportError):
        return str(error)
    info = error.info
    if isinstance(info, dict) and isinstance(info.get("error"), dict):
        cause = (info["error"].get("root_cause") or [info["error"]])[0]
        return f"{error.status_code} {cause.get('type')}: {cause.get('reason')}"
    return f"{error.status_code} {error.error}"
