"""The OpenSearch client: built from the parameters, its failures turned into typed errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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

from icecdc_core.errors import OpenSearchAuthError, OpenSearchRequestError, OpenSearchUnreachableError

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
        )

    def client(self, connections: int = 4) -> OpenSearch:
        """Open a client that keeps this many connections; it retries nothing by itself."""
        options: dict[str, Any] = {"timeout": self.timeout_seconds, "maxsize": connections, "max_retries": 0}
        if self.username:
            options["http_auth"] = (self.username, self.password)
        if self.url.startswith("https"):
            options["verify_certs"] = self.verify_certs
            options["ssl_show_warn"] = False
            if self.ca_certs:
                options["ca_certs"] = self.ca_certs
        return OpenSearch(self.url, **options)


@contextmanager
def typed_errors(url: str, doing: str, username: str = "") -> Iterator[None]:
    """Turn the client's exceptions into icecdc's.

    Args:
        url: The server's address, for the message.
        doing: What was being done, for the message ("reading the position").
        username: Who asked, for the message.

    Raises:
        OpenSearchAuthError: Credentials or permissions were refused.
        OpenSearchUnreachableError: No connection, or no answer in time.
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
