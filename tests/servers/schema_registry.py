"""A real schema registry on loopback: Apicurio, which serves Confluent's API; and the records its clients write."""

import json
import tarfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icecdc_core.session.jars import Jar, jars_in_cache
from icecdc_core.session.java import find_spark_java
from tests.servers.catalog_servers import running_java
from tests.servers.http_server import Answer, Request, http_server

_VERSION = "2.5.11.Final"
_APICURIO = Jar(
    f"io.apicurio:apicurio-registry-app:{_VERSION}:all",
    sha256="f894a17f650ec427de72cfb68edfc30f8020743269293e58372e22f67fd4fd15",
    size=139_779_728,
    extension="tar.gz",
)


@dataclass(frozen=True)
class Registry:
    """A running registry; it keeps its schemas in memory."""

    url: str

    def register(
        self, schema: Any, subject: str = "s", kind: str = "AVRO", references: Sequence[dict[str, Any]] = ()
    ) -> int:
        text = schema if kind == "PROTOBUF" else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        request = urllib.request.Request(
            f"{self.url}/subjects/{subject}/versions",
            json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request) as response:
            return int(json.load(response)["id"])


def framed(number: int, data: bytes) -> bytearray:
    """The bytes of a record: a zero, the schema's number in four bytes, the data."""
    return bytearray(b"\0" + number.to_bytes(4, "big") + data)


@contextmanager
def running_registry(folder: Path) -> Iterator[Registry]:
    java = find_spark_java()
    [archive] = jars_in_cache([_APICURIO], f"test-apicurio-{_VERSION}")
    home = archive.parent / "unpacked"
    if not home.is_dir():
        with tarfile.open(archive) as tar:
            tar.extractall(home.with_suffix(".part"), filter="data")
        home.with_suffix(".part").rename(home)
    options = ["-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port=0"]
    command = [*options, "-jar", home / f"apicurio-registry-app-{_VERSION}-runner.jar"]
    with running_java(java, command, folder) as port:
        yield Registry(f"http://127.0.0.1:{port}/apis/ccompat/v7")


def zigzag(number: int) -> bytes:
    """An int or long in Avro's binary encoding."""
    number = (number << 1) ^ (number >> 63)
    data = bytearray()
    while number > 0x7F:
        data.append((number & 0x7F) | 0x80)
        number >>= 7
    return bytes([*data, number])


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return zigzag(len(data)) + data


NULL, SOME = zigzag(0), zigzag(1)
"""The branches of a union of null and something."""


@contextmanager
def registry_of(schemas: dict[int, dict[str, Any]]) -> Iterator[Registry]:
    """Serve these answers by schema ID, and what is registered; all else does not exist."""
    subjects: dict[str, dict[str, Any]] = {}

    def answer(request: Request) -> Answer:
        if request.method == "POST":
            number = len(schemas) + 1
            schemas[number] = subjects[f"{request.path}/1"] = json.loads(request.body)
            return 200, {"id": number}
        last = request.path.rpartition("/")[2]
        found = schemas.get(int(last)) if "/ids/" in request.path else subjects.get(request.path)
        return (200, found) if found else (404, {"error_code": 40403})

    with http_server(answer) as url:
        yield Registry(url)
