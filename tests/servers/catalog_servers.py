"""The servers of the catalog tests, all real and on loopback; each is a context manager that gives its address."""

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from icecdc_core.session.jars import Jar, jars_in_cache
from icecdc_core.session.java import find_java, find_spark_java
from tests.checks.waiting import is_true_within

HERE = Path(__file__).parent
BUCKET = "lake"
REGION = "us-east-1"
_PORT = re.compile(r"[Ll]istening on:? (?:http://127\.0\.0\.1:)?(\d+)")


@dataclass(frozen=True)
class Aws:
    url: str
    access_key_id: str
    secret_access_key: str


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    jars = [*_jars("rest"), _spark_jars() / "*"]
    arguments = [HERE / "RestCatalogServer.java", folder / "catalog.db", folder / "warehouse"]
    with running_java(find_spark_java(), ["-cp", os.pathsep.join(map(str, jars)), *arguments], folder) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    arguments = [HERE / "HiveMetastoreServer.java", folder / "metastore", folder / "warehouse"]
    options = [f"-Dderby.stream.error.file={folder / 'derby.log'}", "-cp", _spark_jars() / "*"]
    with running_java(find_spark_java(), [*options, *arguments], folder) as port:
        yield f"thrift://127.0.0.1:{port}"


@contextmanager
def nessie(folder: Path, aws: Aws) -> Iterator[str]:
    """Nessie itself, which keeps its tables in the bucket when it is used as a REST catalog."""
    java = find_java(21, purpose="Nessie")
    s3 = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": 0,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": 0,
        "quarkus.otel.sdk.disabled": "true",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": f"s3://{BUCKET}/nessie",
        f"{s3}.endpoint": aws.url,
        f"{s3}.path-style-access": "true",
        f"{s3}.region": REGION,
        # Its way of signing for clients is older than what the client of this Iceberg asks for.
        f"{s3}.request-signing-enabled": "false",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:lake",
        "lake.name": aws.access_key_id,
        "lake.secret": aws.secret_access_key,
    }
    options = [f"-D{key}={value}" for key, value in settings.items()]
    with running_java(java, [*options, "-jar", *_jars("nessie")], folder) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def aws_services() -> Iterator[Aws]:
    """S3 and Glue by moto, which checks every request's signature here."""
    import boto3
    from botocore.config import Config
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        common = {"endpoint_url": url, "region_name": REGION, "config": Config(proxies={})}
        anybody = {"aws_access_key_id": "anybody", "aws_secret_access_key": "anything"}
        boto3.client("s3", **common, **anybody).create_bucket(Bucket=BUCKET)
        iam = boto3.client("iam", **common, **anybody)
        iam.create_user(UserName="icecdc")
        statement = {"Effect": "Allow", "Action": ["s3:*", "glue:*"], "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName="icecdc", PolicyName="lake", PolicyDocument=policy)
        key = iam.create_access_key(UserName="icecdc")["AccessKey"]
        # From here on, 0 requests may go without the right credentials.
        request = urllib.request.Request(f"{url}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"})
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).close()
        yield Aws(url, key["AccessKeyId"], key["SecretAccessKey"])
    finally:
        server.stop()


@contextmanager
def running_java(java: Path, arguments: Sequence[object], folder: Path) -> Iterator[str]:
    """Run a server until the end of the block; yields the port that it prints."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    command = [str(java / "bin" / "java"), "-Xmx700m", *map(str, arguments)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        is_true_within(90, lambda: _PORT.search(log.read_text()) or process.poll() is not None)
        printed = _PORT.search(log.read_text())
        assert printed, f"{command[-3:]} did not start:\n{log.read_text()[-3000:]}"
        yield printed[1]
    finally:
        process.kill()
        process.wait()


def _jars(name: str) -> list[Path]:
    listed = json.loads((HERE / "catalog_jars.json").read_text(encoding="utf-8"))[name]
    return jars_in_cache([Jar(**each) for each in listed], f"test-{name}")


def comet_plugin() -> dict[str, str]:
    """The Spark settings for Apache DataFusion Comet."""
    [jar] = _jars("comet")
    return {
        **dict.fromkeys(("spark.jars", "spark.driver.extraClassPath", "spark.executor.extraClassPath"), str(jar)),
        "spark.plugins": "org.apache.spark.CometPlugin",
        "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": "2g",
    }


def _spark_jars() -> Path:
    return Path(pyspark.__file__).parent / "jars"
