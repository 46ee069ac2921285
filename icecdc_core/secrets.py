"""Secrets: parameters hold references to them, and anything that may be a secret is never shown."""

import importlib
import os
import re
import sys
from collections import UserDict
from collections.abc import Mapping

from icecdc_core.errors import SecretError

REDACTED = "***"
_REFERENCE = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|secret:(?P<scope>[^/\s]+)/(?P<key>\S+)")
_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|token(?!izer|_(?:chars|count|filter|length))|credential|access[-_.]?key|account[-_.]?key|private[-_.]?key|shared[-_.]?key"
    r"|(?:api|cryption|keystore|sse)[-_.]?key|\bsas\b|authorization|cookie|pwd|user[-_.]?info|connection[-_.]?string",
    re.IGNORECASE,
)
_SECRET_IN_TEXT = re.compile(
    r"(?<=://)[^/\s]*(?=@)|-----BEGIN [A-Z ]*PRIVATE KEY(?s:.*?)(?:END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?P<name>(?<![A-Za-z])(?:Bearer|Basic)\s+(?!auth|realm|token)(?=\w)|(?:(?<![A-Za-z])sig|(?<![\w.-])[\w.-]*"
    r"(?:password|pwd|secret|token|credential|signature|(?:access|account)[-_.]?key)[\w.-]*)\s*=\s*)"
    r"(?:(?P<quote>\\*[\"']).*?(?:(?<!\\)(?P=quote)|(?m:$))|[^\s&;,]+)",
    re.IGNORECASE,
)


def is_reference(value: str) -> bool:
    return _REFERENCE.fullmatch(value) is not None


def looks_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def redact(name: str, value: object) -> object:
    """Return a value as it may be shown: references stay, what may be a secret is replaced, also a mapping."""
    if isinstance(value, str) and (not value or is_reference(value)):
        return value
    if looks_secret(name) or (isinstance(value, str) and mask_secrets(value) != value):
        return REDACTED
    return {key: redact(str(key), item) for key, item in value.items()} if isinstance(value, Mapping) else value


def mask_secrets(text: str) -> str:
    return _SECRET_IN_TEXT.sub(lambda match: f"{match['name'] or ''}{REDACTED}", text)


def resolve(reference: str, parameter: str) -> str:
    match = _REFERENCE.fullmatch(reference)
    cause: Exception | None = None
    if match is None:
        problem = "This is not a reference to a secret (its value is not shown)"
        remedy = "use env:NAME or secret:scope/key"
    elif match["name"]:
        if (value := os.environ.get(match["name"])) is not None:
            return value
        problem = "The environment variable of a secret is not set"
        remedy = f"export {match['name']} before the start, where the driver runs"
    else:
        dbutils = vars(sys.modules["__main__"]).get("dbutils")  # the notebook's, else one for the active session
        try:
            if dbutils is None:
                session = importlib.import_module("pyspark.sql").SparkSession.getActiveSession()
                dbutils = importlib.import_module("pyspark.dbutils").DBUtils(session)
            return str(dbutils.secrets.get(scope=match["scope"], key=match["key"]))
        except Exception as error:  # py4j's and Databricks Connect's errors have no common base
            cause, problem = error, f"The Databricks secret cannot be read ({type(error).__name__})"
            remedy = "check that scope and key exist and that this user may read them"
            if isinstance(error, ImportError) and dbutils is None:
                problem = "Databricks secrets can be read on Databricks only, and there is no dbutils here"
                remedy = "use env:NAME outside Databricks"
    raise SecretError(problem, subject=parameter, value=reference if match else None, remedy=remedy) from cause


class Properties(UserDict[str, str]):
    """A mapping of strings whose `repr` shows no secrets; `dict(properties)` has the real values."""

    def __repr__(self) -> str:
        return repr(redact("", self))

    def resolved(self, parameter: str) -> dict[str, str]:
        return {
            key: resolve(value, f"{parameter}.{key}") if is_reference(value) else value for key, value in self.items()
        }
