"""Parsing and validation of the ingest's parameters, from the strings that jobs pass; pure."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from icecdc_core.config.parsing.json_values import parse_json_array, parse_properties
from icecdc_core.config.parsing.names import split_table_name
from icecdc_core.config.parsing.parameter_problem import parameter_problem
from icecdc_core.config.parsing.values import parse_column_names, parse_start_point
from icecdc_core.quoting import quoted
from icecdc_core.secrets import Properties

METADATA = ("topic", "partition", "offset", "timestamp", "key", "headers")
"""Kafka's metadata of a record, in the order of the columns that store it."""

_SERVER = re.compile(r"(\[[0-9a-fA-F:.]+]|[A-Za-z0-9._-]+):([1-9]\d{0,4})")
# Errors in Python's dialect of regular expressions and in Java's.
_WRONG_ANYWHERE = (
    *("missing ), unterminated subpattern", "unbalanced parenthesis", "unterminated character set"),
    "bad escape (end of pattern)",
)
_TRANSFORMS = 'write ["days(ts)","region"] or days(ts), region'
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TRANSFORM = re.compile(r"(years?|months?|days?|hours?)\(([^(),]+)\)|(bucket|truncate)\((\d+), *([^(),]+)\)|([^(),]+)")
# The delivery guarantee depends on them.
_OURS = ("bootstrap.servers", "isolation.level", "group.id", "auto.offset.reset", "enable.auto.commit")


def check_job_name(text: str) -> str:
    """Check the name of a job, which snapshot summaries carry."""
    if not _JOB.fullmatch(text):
        raise parameter_problem(
            "is not a job name", "use up to 100 letters, digits, ., _ and -, beginning with a letter or digit"
        )
    return text


def parse_servers(value: object) -> object:
    """Return brokers as `host:port`, joined by commas."""
    listed = [text.strip() for text in value.split(",")] if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not all(map(_is_server, listed)):
        raise parameter_problem(
            "is not a list of brokers", "write host:port, several with commas, without protocol or credentials"
        )
    return ",".join(listed)


def _is_server(text: object) -> bool:
    match = _SERVER.fullmatch(text) if isinstance(text, str) else None
    return match is not None and int(match[2]) <= 65535


def parse_client_options(value: object) -> Properties:
    """Return Kafka client properties, without the prefix `kafka.` that Spark uses."""
    options = {key.removeprefix("kafka."): text for key, text in parse_properties(value).items()}
    if reserved := [key for key in _OURS if key in options]:
        raise parameter_problem(
            f"sets {', '.join(reserved)} (value not shown)", "use the other parameters instead", show=False
        )
    return Properties(options)


def check_namespace(text: str) -> str:
    """Check `catalog.namespace`, parts back-quoted if needed; or an empty text."""
    if text:
        try:
            split_table_name(f"{text}.t")
        except PydanticCustomError:
            raise parameter_problem("is not a namespace", "name it catalog.namespace, as Spark does") from None
    return text


def parse_metadata_columns(value: object) -> object:
    """Check that the names are in `METADATA`."""
    names = parse_column_names(value)
    if unknown := sorted(set(names) - set(METADATA)):  # type: ignore[call-overload]
        raise parameter_problem(f"names {', '.join(unknown)}", f"choose of {', '.join(METADATA)}")
    return names


def parse_transforms(value: object) -> object:
    """Return partition transforms from a list, a JSON array, or a text with commas outside of parentheses."""
    if isinstance(value, str):
        is_array = value.startswith("[")
        value = parse_json_array(value, _TRANSFORMS) if is_array else re.split(r",\s*(?![^()]*\))", value)
    texts = [str(item).strip() for item in value] if isinstance(value, (list, tuple)) else [""]
    for text in texts:
        parse_transform(text)
    return texts


def parse_transform(text: str) -> tuple[str, int, str]:
    """Return the name of a partition transform ("" for the plain value), its width (0 for none) and its column."""
    match = _TRANSFORM.fullmatch(text)
    if match is None:
        raise parameter_problem(
            f"has {text!r}, which is no transform", "write days(ts), bucket(16, id), truncate(4, name) or region"
        )
    if match[1]:
        return match[1].rstrip("s") + "s", 0, match[2].strip()
    if match[3]:
        if len(match[4]) > 10 or not 0 < int(match[4]) < 2**31:
            raise parameter_problem(
                f"has {text!r}, whose width is not between 1 and {2**31 - 1}", "write for example bucket(16, id)"
            )
        return match[3], int(match[4]), match[5].strip()
    return "", 0, match[6].strip()


def check_expression(text: str) -> str:
    """Check a regular expression. Java checks it again when the ingest starts: only it knows its dialect."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about what Python may read like Java
            re.compile(text)
    except re.error as error:
        dangling = error.msg == "nothing to repeat" and error.pos == 0
        # Java allows nested character classes, which Python reads as other brackets.
        if dangling or (error.msg in _WRONG_ANYWHERE and not re.search(r"\[[^]]*\[", text)):
            raise parameter_problem(
                f"is not a regular expression: {error.msg} at character {error.pos}",
                "write a regular expression of Java, such as orders|payments or order.*",
            ) from None
    return text


def parse_routes(value: object) -> Properties:
    """Return the regular expression of each table."""
    given = parse_properties(value)
    for table, pattern in given.items():
        split_table_name(table)
        if not pattern:
            raise parameter_problem(
                f"has no expression for {table}", "give a regular expression for each table, such as order.*"
            )
        check_expression(pattern)
    return given


def parse_starting_offsets(value: object) -> object:
    """Check `earliest`, `latest`, a timestamp, or offsets as JSON."""
    if isinstance(value, Mapping):
        value = json.dumps(value)
    text = str(value)
    if text.startswith("{"):
        parse_offsets(text)
        return text
    if re.fullmatch(r"-?\d+", text):
        raise parameter_problem(
            "is a number", "write earliest, latest, an ISO timestamp, or JSON: topic to partition to offset"
        )
    parse_start_point(text)
    return text.lower() if text.lower() in ("earliest", "latest") else text


def parse_offsets(text: str) -> dict[str, dict[int, int]]:
    """Return offsets from JSON as Spark writes it: topic to partition to next offset."""
    remedy = 'write {"topic":{"0":42,"1":0}}'
    try:
        topics = json.loads(text)
        parsed = {topic: {int(p): int(offset) for p, offset in parts.items()} for topic, parts in topics.items()}
    except (ValueError, AttributeError, TypeError, OverflowError):
        raise parameter_problem("is not JSON of offsets", remedy) from None
    numbers = [(p, offset) for parts in parsed.values() for p, offset in parts.items()]
    if not all(0 <= p < 2**31 and 0 <= offset < 2**63 for p, offset in numbers):
        raise parameter_problem("has a partition or an offset that Kafka cannot have", remedy)
    return parsed


def quoted_table(name: str) -> str:
    """Return the table's name with every part back-quoted; "" for none."""
    return ".".join(quoted(part) for part in split_table_name(name)) if name else ""


def derive_namespace(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the namespace if none is given: that of the table, or of the first route."""
    try:
        named = given.get("table") or next(iter(parse_routes(given.get("routes") or {})), "")
        return {"namespace": ".".join(quoted(part) for part in split_table_name(named)[:-1])} if named else {}
    except PydanticCustomError:
        return {}
