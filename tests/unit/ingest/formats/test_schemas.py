"""Reading schemas from a registry, and converting JSON Schema to columns; without a Spark session."""

import json
import threading
import time
from contextlib import contextmanager

import pytest

from icecdc_core.ingest.formats.schemas import RegisteredSchema, json_schema_struct as spark_struct, registered_schema
from tests.servers.http_server import http_server


@contextmanager
def registry_server(*answers):
    """Run a server that gives these answers in turn; yields its URL and the requests that it got."""
    left, asked = list(answers), []

    def answer(request):
        asked.append((request.path, request.headers.get("Authorization")))
        return left.pop(0)

    with http_server(answer) as url:
        yield f"{url}/api/", asked


class DescribeSchemaRegistry:
    def it_requests_a_schema_once_with_its_credentials_and_retries_temporary_errors(self, monkeypatch):
        slept, known = [], {}
        own, sleep = threading.get_ident(), time.sleep

        def sleep_here(seconds):  # threads of other tests sleep, too
            (slept.append if threading.get_ident() == own else sleep)(seconds)

        monkeypatch.setattr(time, "sleep", sleep_here)
        answers = (503, {}), (429, {}), (200, {"schema": "{}", "schemaType": "JSON"}), (200, {"schema": '"int"'})
        with registry_server(*answers) as (url, asked):
            found = [registered_schema(number, known, url, "me:secret") for number in (7, 7, 8)]
        assert found == [RegisteredSchema("JSON", "{}")] * 2 + [RegisteredSchema("AVRO", '"int"')]
        assert slept == [0.5, 2.0]
        assert asked == [(f"/api/schemas/ids/{number}", "Basic bWU6c2VjcmV0") for number in (7, 7, 7, 8)]

    def it_says_which_schema_does_not_exist(self):
        schema = {"schema": '"A"', "references": [{"name": "A", "subject": "a/b", "version": 1}]}
        unknown, gone = (404, {"error_code": 40403, "message": "no"}), (404, {"error_code": 40401})
        with registry_server(unknown, (200, schema), gone) as (url, asked):
            # No registry has IDs above Java's integers, and it answers such a request as it answers a wrong URL.
            known = {}
            found = [registered_schema(number, known, url) for number in (7, 8, 1 << 31)]
        assert known == {}
        assert found == [
            "the schema registry has no schema 7",
            "the schema registry has no version 1 of subject a/b, to which schema 8 refers",
            "the schema registry has no schema 2147483648",
        ]
        assert [path for path, _ in asked][1:] == ["/api/schemas/ids/8", "/api/subjects/a%2Fb/versions/1"]


class DescribeJsonSchemas:
    @pytest.mark.parametrize(
        ("properties", "expected"),
        [
            ({"a": {"type": "integer"}}, "a:bigint"),
            ({"a": {"type": "integer", "connect.type": "int16"}}, "a:int"),
            ({"a": {"type": "number"}, "b": {"type": "boolean"}}, "a:double,b:boolean"),
            ({"a": {"type": "string", "format": "date"}}, "a:date"),
            ({"a": {"type": "string", "format": "email"}}, "a:string"),
            ({"a": {"type": ["null", "integer"]}}, "a:bigint"),
            ({"a": {"type": ["string", "integer"]}}, "a:string"),
            ({"a": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}, "a:string"),
            # Beside a type, choices are conditions.
            ({"a": {"type": "number", "oneOf": [{"minimum": 0}, {"maximum": -5}]}}, "a:double"),
            ({"a": {"type": "object", "properties": {"x": True}, "anyOf": [{}, {}]}}, "a:struct<x:string>"),
            ({"a": {"type": "object", "oneOf": [{"$ref": "other.json"}]}}, "a:struct<z:bigint>"),
            ({"a": {"type": "array", "items": {"type": "number"}}}, "a:array<double>"),
            ({"a": {"type": "object"}}, "a:string"),
            ({"a": {"$ref": "#/definitions/d~1x"}}, "a:struct<y:boolean>"),
            ({"a": {"$ref": "other.json"}}, "a:struct<z:bigint>"),
            ({"a": {"$ref": "other.json#/properties/z"}}, "a:bigint"),
            ({"a": {"$ref": "#/nowhere"}}, "a:string"),
            ({"a": {"$ref": "#"}, "b": {"items": {"$ref": "#"}, "type": "array"}}, "a:string,b:array<string>"),
            ({"a": True}, "a:string"),
            ({"a": {"enum": [1, "x"]}}, "a:string"),
        ],
        ids=str,
    )
    def it_converts_types(self, properties, expected):
        other = RegisteredSchema("JSON", json.dumps({"properties": {"z": {"type": "integer"}}}))
        schema = {"properties": properties, "definitions": {"d/x": {"properties": {"y": {"type": "boolean"}}}}}
        found = spark_struct(RegisteredSchema("JSON", json.dumps(schema), {"other.json": other}))
        assert found.simpleString() == f"struct<{expected}>"

    def it_describes_an_object_whatever_conditions_are_beside_it(self):
        of_a = {"type": "object", "properties": {"a": True}}
        roots = {**of_a, "anyOf": [{"required": ["a"]}] * 2}, {"allOf": [{"$ref": "#/d"}], "d": of_a}
        assert [spark_struct(RegisteredSchema("JSON", json.dumps(root))).names for root in roots] == [["a"]] * 2

    def it_requires_required_fields_that_are_never_null(self):
        kinds = {"a": {"type": "integer"}, "b": {"type": ["null", "integer"]}, "c": {"type": "integer"}}
        found = spark_struct(RegisteredSchema("JSON", json.dumps({"properties": kinds, "required": ["a", "b"]})))
        assert [field.nullable for field in found] == [False, True, True]

    def it_refuses_a_schema_that_describes_too_many_values(self):
        doubled = {f"d{n}": {"properties": {each: {"$ref": f"#/d{n + 1}"} for each in "ab"}} for n in range(40)}
        with pytest.raises(ValueError, match="more than 10,000 values"):
            spark_struct(RegisteredSchema("JSON", json.dumps({"properties": {"a": {"$ref": "#/d0"}}, **doubled})))
        assert spark_struct(RegisteredSchema("JSON", '{"type": "string"}')) is None  # it describes no object
