"""Schemas of a registry: how they are asked for, and what JSON Schema says of columns; no Spark session."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from icecdc_core.errors import SchemaRegistryError
from icecdc_core.ingest.formats.json_schemas import struct_of
from icecdc_core.ingest.formats.registry import RegisteredSchema, SchemaRegistry


@contextmanager
def answering(*answers: tuple[int, object]) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server that gives these answers in turn; yields its address and what it was asked."""
    left, asked = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Authorization")))
            status, body = left.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api/", asked
    finally:
        server.shutdown()
        server.server_close()


class DescribeSchemaRegistry:
    def it_asks_once_with_its_credentials(self):
        with answering((200, {"schema": '"int"'})) as (url, asked):
            registry = SchemaRegistry(url, "me:secret")
            found = [registry.schema(7), registry.schema(7)]
        assert found == [RegisteredSchema("AVRO", '"int"')] * 2
        assert asked == [("/api/schemas/ids/7", "Basic bWU6c2VjcmV0")]

    def it_tries_again_when_the_registry_stumbles(self):
        slept: list[float] = []
        with answering((503, {}), (429, {}), (200, {"schema": "{}", "schemaType": "JSON"})) as (url, _):
            found = SchemaRegistry(url, sleep=slept.append).schema(7)
        assert (found, slept) == (RegisteredSchema("JSON", "{}"), [0.5, 2.0])

    @pytest.mark.parametrize(
        ("answers", "text"),
        [
            ([(401, {"error_code": 401})], "refuses the request: HTTP Error 401"),
            ([(404, {"error_code": 404})], "refuses the request: HTTP Error 404"),
            ([(404, b"<html>")], "refuses the request: HTTP Error 404"),
            ([(500, {})] * 3, "refuses the request: HTTP Error 500"),
            ([(200, b"<html>")] * 3, "does not answer as it should"),
        ],
        ids=["credentials", "path", "web-server", "broken", "no-json"],
    )
    def it_raises_when_nobody_can_know(self, answers, text):
        with answering(*answers) as (url, _), pytest.raises(SchemaRegistryError, match=text) as caught:
            SchemaRegistry(url.replace("://", "://me:secret@"), sleep=lambda _: None).schema(7)
        assert "secret" not in str(caught.value)

    def it_knows_that_there_is_no_such_schema(self):
        with answering((404, {"error_code": 40403, "message": "no"})) as (url, _):
            assert SchemaRegistry(url).schema(7) is None

    def it_raises_when_a_reference_is_gone(self):
        schema = {"schema": '"A"', "references": [{"name": "A", "subject": "a/b", "version": 1}]}
        gone = (404, {"error_code": 40401})
        with (
            answering((200, schema), gone) as (url, asked),
            pytest.raises(SchemaRegistryError, match="refers to another"),
        ):
            SchemaRegistry(url).schema(7)
        assert asked[1][0] == "/api/subjects/a%2Fb/versions/1"


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
            ({"a": {"type": "array", "items": {"type": "number"}}}, "a:array<double>"),
            ({"a": {"type": "object"}}, "a:string"),
            ({"a": {"$ref": "#/definitions/d~1x"}}, "a:struct<y:boolean>"),
            ({"a": {"$ref": "other.json"}}, "a:struct<z:bigint>"),
            ({"a": {"$ref": "other.json#/properties/z"}}, "a:bigint"),
            ({"a": {"$ref": "#/nowhere"}}, "a:string"),
            ({"a": True}, "a:string"),
            ({"a": {"enum": [1, "x"]}}, "a:string"),
        ],
        ids=str,
    )
    def it_takes_what_columns_can_have(self, properties, expected):
        other = RegisteredSchema("JSON", json.dumps({"properties": {"z": {"type": "integer"}}}))
        schema = {"properties": properties, "definitions": {"d/x": {"properties": {"y": {"type": "boolean"}}}}}
        found = struct_of(RegisteredSchema("JSON", json.dumps(schema), {"other.json": other}))
        assert found is not None
        assert found.simpleString() == f"struct<{expected}>"

    def it_requires_what_is_required_and_never_null(self):
        schema = {
            "properties": {"a": {"type": "integer"}, "b": {"type": ["null", "integer"]}, "c": {"type": "integer"}},
            "required": ["a", "b"],
        }
        found = struct_of(RegisteredSchema("JSON", json.dumps(schema)))
        assert found is not None
        assert [field.nullable for field in found] == [False, True, True]

    def it_follows_a_schema_that_holds_itself_only_so_far(self):
        schema = {"properties": {"next": {"$ref": "#"}}}
        assert struct_of(RegisteredSchema("JSON", json.dumps(schema))) is not None

    def it_is_none_for_what_is_no_object(self):
        assert struct_of(RegisteredSchema("JSON", '{"type": "string"}')) is None
