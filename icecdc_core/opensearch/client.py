"""The OpenSearch client: built from the parameters, its failures turned into typed errors."""

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
from icecdc_core.opensearch.aws import signer
from icecdc_core.opensearch.retry import RetryingTransport

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


@dataclass(frozen=True)
class Connection:
    """How to reach OpenSearch; travels to the executors, so the password is resolved but never printed."""

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

    @classmethod
    def of(cls, config: SyncConfig) -> Connection:
        """Take the connection's part of the parameters.

        Raises:
            SecretError: The password reference cannot be resolved.
        """
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
        )

    def client(self, connections: int = 4, retry_seconds: float = 0.0, answers: Serializer | None = None) -> OpenSearch:
        """Open a client.

        Args:
            connections: How many connections it keeps.
            retry_seconds: How long it tries a request again after a passing failure; 0: never.
            answers: What reads JSON answers; None: the client's own way.

        Raises:
            ConfigError: A file with certificates or a key cannot be read.
            SecretError: Requests are to be signed and there are no AWS credentials.
        """
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
            options["http_auth"] = (self.username, self.password)
        elif self.aws_region:
            options["http_auth"] = signer(self.aws_region, self.aws_service)
        if self.url.startswith("https"):
            options["verify_certs"] = self.verify_certs
            # Not to verify is a parameter of its own; urllib3's word about it in every process helps nobody.
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
            remedy="give a PEM file that driver and executors can read",
        ) from error
    return path


@contextmanager
def typed_errors(url: str, doing: str, username: str = "") -> Iterator[None]:
    """Turn the client's exceptions into icecdc's.

    Args:
        url: The server's address, for the message.
        doing: What was being done, for the message ("reading the position").
        username: Who asked, for the message.

    Raises:
        OpenSearchAuthError: Credentials or permissions were refused.
        OpenSearchUnreachableError: No connection, no answer in time, or none that is OpenSearch's.
        OpenSearchRequestError: The request was refused for another reason.
    """
    try:
        yield
    except OpenSearchException as error:
        raise typed(error, url, doing, username) from error


def typed(error: OpenSearchException, url: str, doing: str, username: str = "") -> Exception:
    """Return the typed error for one of the client's exceptions."""
    if isinstance(error, (AuthenticationException, AuthorizationException)):
        return OpenSearchAuthError(
            f"OpenSearch refused {doing}: {_reason(error)}",
            subject="opensearch_username",
            value=username or None,
            remedy="check opensearch_username, the secret behind opensearch_password, and the role's permissions",
        )
    if isinstance(error, SSLError):
        return OpenSearchUnreachableError(
            f"No trusted TLS connection to OpenSearch while {doing}: {_reason(error)}",
            subject="opensearch_ca_certs",
            remedy="give the file with the server's CA in opensearch_ca_certs; check that the name in the URL is right",
        )
    if isinstance(error, UnusableAnswerError):
        return OpenSearchUnreachableError(
            f"What answers {doing} is not OpenSearch: {error.error}",
            subject="opensearch_url",
            value=url,
            remedy="run again; if it goes on, check the URL and the proxy or gateway between here and OpenSearch",
        )
    if isinstance(error, ConnectionError) or (isinstance(error, TransportError) and error.status_code == 503):
        return OpenSearchUnreachableError(
            f"OpenSearch does not answer while {doing}: {_reason(error)}",
            subject="opensearch_url",
            value=url,
            remedy="check the URL, and that the cluster runs and can be reached from here",
        )
    return OpenSearchRequestError(
        f"OpenSearch refused {doing}: {_reason(error)}",
        subject="opensearch_url",
        value=url,
        remedy="see the reason above; the cluster's log has the details",
    )


def _reason(error: OpenSearchException) -> str:
    if not isinstance(error, TransportError):
        return str(error)
    info = error.info
    if isinstance(info, dict) and isinstance(info.get("error"), dict):
        cause = (info["error"].get("root_cause") or [info["error"]])[0]
        return f"{error.status_code} {cause.get('type')}: {cause.get('reason')}"
    return f"{error.status_code} {error.error}"
