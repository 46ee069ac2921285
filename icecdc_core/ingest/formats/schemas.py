"""Writers' schemas in a Confluent-compatible registry: reading Avro by them, and their types as Spark's."""

from __future__ import annotations

import base64
import json
import math
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from importlib.util import find_spec
from itertools import count
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

from pydantic import BaseModel, Field, ValidationError
from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T
from pyspark.sql.avro.functions import from_avro
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_chain, wait_fixed

from icecdc_core.columns import OWN_PREFIX
from icecdc_core.errors import DependencyError, SchemaRegistryError
from icecdc_core.ingest.formats.logical_types import DECIMAL, PRECISION, LogicalType
from icecdc_core.session.compat import AVRO_READER, has_class
from icecdc_core.session.jars import avro_package
from icecdc_core.session.jvm import java_class

_SCALARS: dict[Any, T.DataType] = {"integer": T.LongType(), "number": T.DoubleType(), "boolean": T.BooleanType()}
_FORMATS: dict[Any, T.DataType] = {"date": T.DateType(), "date-time": T.TimestampType()}
MOST_NODES, _MOST_DIGITS = 10_000, 38
_END = secrets.token_bytes(16)  # no record can know it


def read_avro(records: DataFrame, schema: RegisteredSchema, data: Column) -> tuple[Column, LogicalType]:
    """Return a value in Avro's binary encoding, and its type; null if the bytes, to the last one, do not fit."""
    new_parser = java_class(records.sparkSession, "org.apache.avro.Schema$Parser")
    parser = new_parser().setValidateDefaults(False)  # Spark does not check them either
    *_, whole = (parser.parse(each.text) for each in (*schema.references.values(), schema))
    node = json.loads(whole.toString(), object_hook=_readable_type)
    parsed = new_parser().setValidateDefaults(False).parse(json.dumps(node))
    # Spark reads a malformed record as a record of nulls, but a malformed array as null. In the encoding an array
    # is a count, that many values, and a zero; Spark ignores what follows, so a mark says where the value ends.
    array = F.concat(F.lit(b"\2"), data, F.lit(_END + b"\0"))
    end = {"type": "fixed", "name": f"{OWN_PREFIX}end", "size": len(_END)}
    fields = [{"name": "value", "type": node}, {"name": "end", "type": end}]
    items = {"type": "record", "name": f"{OWN_PREFIX}marked", "fields": fields}
    values = from_avro(array, json.dumps({"type": "array", "items": items}), {"mode": "PERMISSIVE"})
    marked = F.get(values, F.lit(0))
    value = F.when((F.size(values) == 1) & (marked["end"] == F.lit(_END)), marked["value"])
    return value, _avro_type(parsed, records.select(value).schema[0].dataType)


def _readable_type(node: dict[str, Any]) -> dict[str, Any]:
    """The type with decimals that Spark reads exactly, or as bytes: Connect's, without a precision, has 64 digits."""
    node.pop("spark.sql.catalyst.type", None)  # by which Spark would read intervals, for which Iceberg has no type
    digits, scale = node.get("precision"), node.get("scale", 0)
    if node.get("logicalType") != "decimal" or not isinstance(digits, int) or not isinstance(scale, int):
        return node
    if digits > _MOST_DIGITS:
        return {"connect.name": DECIMAL, "connect.parameters": {"scale": str(scale)}, **node, "logicalType": ""}
    # Of a value with more digits than it may have, Spark takes the last 64 bits if the precision is below 19.
    widest = min(_MOST_DIGITS, int((8 * node.get("size", 16) - 1) * math.log10(2)))
    return {**node, "precision": widest, PRECISION: digits} if 0 <= scale <= digits <= widest else node


def require_avro(spark: SparkSession) -> None:
    if not has_class(java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader(), AVRO_READER):
        raise DependencyError(
            "The Spark session has no Avro reader",
            subject="spark.jars.packages",
            value=spark.conf.get("spark.jars.packages", ""),
            remedy=f"attach the library {avro_package(spark.version)} to the cluster, or restart the kernel or the "
            "program",
        )


def require_protoc() -> None:
    if find_spec("grpc_tools") is None:
        raise DependencyError(
            "The compiler of Protobuf schemas is not installed",
            subject="format",
            value="protobuf",
            remedy="pip install 'icecdc[protobuf]'",
        )


def _avro_type(schema: Any, kind: T.DataType, optional: bool = False) -> LogicalType:
    """The logical types in a schema of Avro's Java library, with the types that Spark reads by it."""
    if schema.isUnion():
        branches = [branch for branch in schema.getTypes() if branch.getName() != "null"]
        optional = optional or schema.isNullable()
        # Spark reads a union of several types as a struct, whose values are not converted.
        return _avro_type(branches[0], kind, optional) if len(branches) == 1 else LogicalType(kind)
    parameters = dict(schema.getObjectProp("connect.parameters") or {})
    if (digits := schema.getObjectProp(PRECISION)) is not None:
        parameters[PRECISION] = str(digits)
    of = partial(LogicalType, kind, schema.getProp("connect.name") or "", parameters, optional)
    if isinstance(kind, T.StructType):
        fields = {field.name(): field.schema() for field in schema.getFields()}
        return of({name: _avro_type(each, kind[name].dataType) for name, each in fields.items()})
    if isinstance(kind, T.ArrayType):
        return of(item=_avro_type(schema.getElementType(), kind.elementType))
    if isinstance(kind, T.MapType):
        return of(item=_avro_type(schema.getValueType(), kind.valueType))
    return of()


def json_schema_struct(schema: RegisteredSchema) -> T.StructType | None:
    """Return the columns of an object with this schema; None if the schema does not describe an object."""
    references = {name: json.loads(other.text) for name, other in schema.references.items()}
    expanded = count()

    def type_of(node: Any, root: Any, around: tuple[int, ...]) -> tuple[T.DataType, bool]:
        """The type of a node, and whether it allows null. A node inside itself is a text."""
        if not isinstance(node, dict) or id(node) in around:
            return T.StringType(), True
        if next(expanded) > MOST_NODES:
            raise ValueError(f"it describes more than {MOST_NODES:,} values")
        around = (*around, id(node))
        if "$ref" in node:
            name, _, pointer = node["$ref"].partition("#")
            root = found = references.get(name) if name else root
            for part in filter(None, unquote(pointer).split("/")):
                key = part.replace("~1", "/").replace("~0", "~")
                found = found.get(key) if isinstance(found, dict) else None
            return type_of(found, root, around)
        kinds, choices = node.get("type"), node.get("oneOf", node.get("anyOf"))
        if isinstance(kinds, list):
            choices = [{**node, "type": kind} for kind in kinds]
        else:
            if choices is None and len(node.get("allOf", ())) == 1:
                choices = node["allOf"]
            own = single(node, root, around)
            # Beside a type, choices are conditions.
            if choices is None or kinds not in (None, "object") or own != T.StringType():
                return own, kinds == "null" or (kinds is None and "properties" not in node)
        others = [each for each in choices if not isinstance(each, dict) or each.get("type") != "null"]
        kind, is_null = type_of(others[0], root, around) if len(others) == 1 else (T.StringType(), False)
        return kind, is_null or len(others) < len(choices)

    def single(node: dict[str, Any], root: Any, around: tuple[int, ...]) -> T.DataType:
        kind = node.get("type")
        if kind == "object" or "properties" in node:
            required, values = set(node.get("required", ())), node.get("additionalProperties")
            inner = {name: type_of(each, root, around) for name, each in node.get("properties", {}).items()}
            fields = [T.StructField(name, each, null or name not in required) for name, (each, null) in inner.items()]
            if not fields and isinstance(values, dict):
                return T.MapType(T.StringType(), *type_of(values, root, around))
            return T.StructType(fields) if fields else T.StringType()
        if kind == "array":
            return T.ArrayType(*type_of(node.get("items"), root, around))
        if kind == "integer" and node.get("connect.type") in ("int8", "int16", "int32"):
            return T.IntegerType()
        if kind == "string":
            return _FORMATS.get(node.get("format"), T.StringType())
        return _SCALARS.get(kind, T.StringType())

    whole = json.loads(schema.text)
    kind, _ = type_of(whole, whole, ())
    return kind if isinstance(kind, T.StructType) else None


_NOT_FOUND = (40401, 40402, 40403)  # the registry's error codes for an unknown subject, version and schema
_TRANSIENT = (429, *range(500, 600))
_MISSING = "the schema registry has no"
_RETRY_SECONDS = (0.5, 2.0)


@dataclass(frozen=True)
class RegisteredSchema:
    kind: str
    text: str
    references: dict[str, RegisteredSchema] = field(default_factory=dict)


def registered_schema(
    schema_id: int, known: dict[int, RegisteredSchema], url: str, auth: str = ""
) -> RegisteredSchema | str:
    """Return a schema with its references, which is read once; if the registry lacks one of them, a text says which."""
    name = f"schema {schema_id}"
    if schema_id >= 1 << 31:  # the registry would answer as for a wrong URL
        return f"{_MISSING} {name}"
    if schema_id not in known:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if auth:
            headers["Authorization"] = "Basic " + base64.b64encode(auth.encode()).decode()
        found = _read(partial(_get, url.rstrip("/"), headers), f"/schemas/ids/{schema_id}", name)
        if isinstance(found, str):
            return found
        known[schema_id] = found
    return known[schema_id]


class _Reference(BaseModel):
    name: str
    subject: str
    version: int


class _Answer(BaseModel):
    text: str = Field(alias="schema")
    kind: str | None = Field(None, alias="schemaType")
    references: list[_Reference] | None = None


def _read(get: Callable[[str], _Answer | None], path: str, name: str) -> RegisteredSchema | str:
    answer = get(path)
    if answer is None:
        return f"{_MISSING} {name}"
    references: dict[str, RegisteredSchema] = {}
    for reference in answer.references or []:
        subject, version = reference.subject, reference.version
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        other = _read(get, path, f"version {version} of subject {subject}")
        if isinstance(other, str):
            return f"{other}, to which {name} refers"
        references |= {**other.references, reference.name: other}
    return RegisteredSchema(answer.kind or "AVRO", answer.text, references)


def _get(url: str, headers: dict[str, str], path: str) -> _Answer | None:
    """Return the registry's answer, by Confluent's REST API; None if it does not have what was asked for."""

    def request() -> _Answer | None:
        try:
            with urlopen(Request(url + path, headers=headers), timeout=15) as response:  # noqa: S310
                return _Answer.model_validate_json(response.read())
        except ValidationError as error:
            raise ValueError("the answer is no schema") from error
        except HTTPError as error:
            with suppress(ValueError, AttributeError):
                if error.code == 404 and json.loads(error.read()).get("error_code") in _NOT_FOUND:
                    return None
            raise

    attempts = Retrying(
        retry=retry_if_exception(lambda error: not isinstance(error, HTTPError) or error.code in _TRANSIENT),
        wait=wait_chain(*map(wait_fixed, _RETRY_SECONDS)),
        stop=stop_after_attempt(len(_RETRY_SECONDS) + 1),
        reraise=True,
    )
    try:
        return attempts(request)
    except (OSError, ValueError, HTTPException) as error:  # an HTTPError is an OSError
        what = "rejects the request" if isinstance(error, HTTPError) else "cannot be read"
        raise SchemaRegistryError(
            f"The schema registry {what}: {error}",
            subject="schema_registry_url",
            value=url + path,
            remedy="check the URL, the credentials and the registry itself; nothing of the batch was written",
        ) from error
