"""Checks of URLs: their form, no credentials in them, and no cluster that a sync cannot use; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from icecdc_core.config.parsing.parameter_problem import parameter_problem
from icecdc_core.secrets import Properties

_SERVERLESS_HOST = re.compile(r"\.aoss\.([^/]+\.)?(amazonaws\.com|amazonaws\.com\.cn|on\.aws|api\.aws)")
CATALOG_SETTINGS = "spark.sql.catalog."
URL_REMEDY = (
    "write the URL as https://host:port/path, and give credential or token (for other catalogs their own property) as "
    "env:NAME or secret:scope/key"
)


def check_url(text: str) -> str:
    """An http(s) URL of a node or load balancer, without credentials."""
    remedy = "write it as http://host:port or https://host:port"
    if "@" in text:
        raise parameter_problem(
            "must not carry credentials (value not shown)",
            f"{remedy}, and use opensearch_username and opensearch_password",
            show=False,
        )
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or re.search(r"\s", text):
        raise parameter_problem("is not an http or https URL", remedy)
    if parts.query or parts.fragment:
        raise parameter_problem("has a query or fragment", remedy, show=False)
    return text.rstrip("/")


def check_cluster_url(text: str) -> str:
    """A URL as `check_url` checks it, and not of OpenSearch Serverless."""
    url = check_url(text)
    if _SERVERLESS_HOST.search(f".{urlsplit(url).hostname}"):
        raise _serverless_problem()
    return url


def check_aws_service(value: Any) -> Any:
    """The service to sign requests for; Serverless is refused with the reason."""
    if value == "aoss":
        raise _serverless_problem()
    return value


def _serverless_problem() -> PydanticCustomError:
    return parameter_problem(
        "is for OpenSearch Serverless (aoss), which is not supported: it has neither _refresh nor GET /, so an index "
        "could be written there but never proven equal to its table",
        "use a domain of Amazon OpenSearch Service (opensearch_aws_service=es) or any other OpenSearch cluster",
    )


def check_optional_url(text: str) -> str:
    """A URL as `check_url` checks it, or an empty string."""
    return check_url(text) if text else text


def check_catalog_properties(given: Properties) -> Properties:
    """Catalog properties, refused when a URL has credentials in it."""
    return _without_credentials(given, find_urls_with_credentials(given))


def check_spark_conf(given: Properties) -> Properties:
    """Spark settings, refused when a URL of a catalog has credentials in it."""
    return _without_credentials(given, find_urls_with_credentials(given, CATALOG_SETTINGS))


def find_urls_with_credentials(given: Mapping[str, str], prefix: str = "") -> list[str]:
    """Find http(s) URLs with a user or a password in them."""
    # Clients repeat the URL in errors and logs, and Spark shows it in its settings.
    credentials = re.compile(r"\s*https?://.*@", re.IGNORECASE | re.DOTALL)
    return [name for name, value in given.items() if name.startswith(prefix) and credentials.match(value)]


def _without_credentials(given: Properties, found: Sequence[str]) -> Properties:
    if found:
        raise parameter_problem(
            f"must not carry credentials in a URL, as {', '.join(map(repr, found))} does (value not shown)",
            URL_REMEDY,
            show=False,
        )
    return given
