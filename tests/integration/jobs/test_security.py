"""What a reviewer asks: who is talked to, with which rights, and where secrets could show up."""

import hashlib
import ipaddress
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import psutil
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from opensearchpy.exceptions import TransportError

from icecdc_core import export_table, replay_dead_letters, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import OpenSearchAuthError, OpenSearchUnreachableError, SecretError
from icecdc_core.jobs.status import status
from icecdc_core.opensearch.bulk import BulkWriter
from icecdc_core.opensearch.client import Connection
from icecdc_core.runs.run import connect
from icecdc_core.session.catalog import embedded_catalog_properties
from tests.checks.bulk_writes import write
from tests.checks.doc_blocks import allowed_requests
from tests.conftest import GIVEN_CATALOG
from tests.faults.tables import rows_as_documents
from tests.servers.loopback_proxy import loopback_proxy
from tests.speed.fast_java import small_spark

ROOT = Path(__file__).parents[3]
CREATE = "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


def served(authority, name="127.0.0.1", asks=False):
    """What a server of this name needs, which may ask for the certificate of its client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(name))
    if asks:
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


CA, UNVERIFIED = {"opensearch_ca_certs": "{ca}"}, {"opensearch_verify_certs": False}
OWN = {**CA, "opensearch_client_cert": "{certificate}", "opensearch_client_key": "{key}"}


class DescribeTls:
    @pytest.mark.parametrize(
        ("server", "asks", "given", "refused"),
        [
            pytest.param("127.0.0.1", False, {}, r"No trusted TLS.*opensearch_ca_certs", id="unknown CA"),
            pytest.param("search.example.com", False, CA, "No trusted TLS", id="another name"),
            pytest.param("search.example.com", False, UNVERIFIED, "", id="unverified on request"),
            pytest.param("127.0.0.1", True, OWN, "", id="own certificate"),
            pytest.param("search.example.com", True, {**OWN, **UNVERIFIED}, "", id="own, unverified"),
            pytest.param("127.0.0.1", True, CA, "No trusted TLS", id="no certificate"),
        ],
    )
    def it_is_verified(self, make_config, opensearch_url, authority, server, asks, given, refused):
        certificate, key = authority.issue("icecdc")
        paths = {"ca": authority.file, "certificate": certificate, "key": key}
        values = {name: value.format(**paths) if isinstance(value, str) else value for name, value in given.items()}
        expected = pytest.raises(OpenSearchUnreachableError, match=refused) if refused else nullcontext()
        with loopback_proxy(opensearch_url, tls=served(authority, server, asks)) as proxy, expected:
            connect(make_config(opensearch_url=proxy.url, **values)).close()

    def it_carries_a_whole_sync_with_a_password(
        self, spark, sql, make_config, indexed, opensearch_url, authority, monkeypatch
    ):
        monkeypatch.setenv("ICECDC_TEST_PASSWORD", "s3cret/with:signs")
        sql(CREATE, "INSERT INTO {t} VALUES (1, 'one'), (2, 'two')")
        with loopback_proxy(opensearch_url, credentials="ann:s3cret/with:signs", tls=served(authority)) as proxy:
            config = make_config(
                opensearch_url=proxy.url,
                opensearch_ca_certs=str(authority.file),
                opensearch_username="ann",
                opensearch_password="env:ICECDC_TEST_PASSWORD",
            )
            sync_changes(spark, config)
            verdict = validate_table(spark, config).ok
            monkeypatch.setenv("ICECDC_TEST_PASSWORD", "guessed-wrong")
            with pytest.raises(OpenSearchAuthError, match=r"401.*\[opensearch_username='ann'\]"):
                sync_changes(spark, config)
        assert (verdict, indexed()) == (True, rows_as_documents(spark, config.table))

    def it_is_no_matter_of_trust_when_a_server_closes_the_connection(self, authority):
        def serve():
            server.accept()[0].close()  # as a proxy does whose server restarts
            for answer in (b"", b"HTTP/1.1 413 \r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"):
                with context.wrap_socket(server.accept()[0], server_side=True) as opened:
                    opened.recv(1000)
                    opened.sendall(answer)
                    time.sleep(0.1)

        context, options = served(authority), {"verify_certs": True, "ca_certs": str(authority.file)}
        with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
            pool.submit(serve)
            url = f"https://127.0.0.1:{server.getsockname()[1]}"
            client = Connection(url, options=options).client(retry_seconds=10)
            with closing(client), pytest.raises(TransportError) as caught:
                client.transport.perform_request("POST", "/t/_bulk", body=b"x" * 4_000_000)
        assert caught.value.status_code == 413


class DescribeAwsSignatures:
    @pytest.fixture
    def endpoint(self, opensearch_url, monkeypatch):
        """A server that takes only what is signed with its key."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the/right+secret")

        def gate(method, path, headers, body):
            keys = ("AKIDEXAMPLE", "the/right+secret", "eu-central-1", "es")
            return None if is_signed(method, path, headers, body, *keys) else (403, {"error": "wrong signature"})

        with loopback_proxy(opensearch_url, gate=gate) as proxy:
            yield proxy

    def it_signs_every_request_of_driver_and_writer(self, endpoint, make_config, opensearch, name, monkeypatch):
        config = make_config(opensearch_url=endpoint.url, opensearch_aws_region="eu-central-1")
        opensearch.indices.create(index=name, body={"aliases": {f"{name}--WRITE": {}}})
        client = connect(config)
        PositionStore(client, config).lock(config.table, "", "the-run").release()
        client.search(index=name, body={"query": {"match_all": {}}}, params={"q": "a:é*", "size": "1"})
        client.close()
        head = {"index": {"_id": "é/1", "version": 3, "version_type": "external"}}
        action = f'{json.dumps(head)}\n{{"n":"ü"}}\n'
        settings = BulkWriter(Connection.of(config), f"{name}--WRITE", 4096, 1, 0.0, 0)
        result = write(settings, action)
        opensearch.indices.delete(index=name)
        assert (result.counts.upserts, result.failure, len(endpoint.seen) >= 6) == (1, None, True)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the/wrong+secret")
        with pytest.raises(OpenSearchAuthError) as caught:
            connect(config).close()
        assert "wrong+secret" not in str(caught.value)

    def it_says_when_there_are_no_credentials(self, make_config, monkeypatch, tmp_path):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        with pytest.raises(SecretError, match="No AWS credentials"):
            connect(make_config(opensearch_aws_region="eu-central-1")).close()


def it_finds_planted_secrets_nowhere(sql, make_config, opensearch, opensearch_url, tmp_path):
    """A notebook in its own process; what it leaves behind and every command line meanwhile is searched."""
    secrets = {f"PLANTED_{n}": f"planted{n}9f3a" for n in ("PASSWORD", "KEY", "THING", "CONF")}
    sql(CREATE, "INSERT INTO {t} VALUES (1, 'one'), (2, 'two')")
    config = make_config()
    # A catalog that is given may need its own key.
    key = "adls.sas-token.planted" if GIVEN_CATALOG else "s3.secret-access-key"
    own = dict(config.catalog_properties) or embedded_catalog_properties(config.warehouse)
    catalog = {**own, key: "env:PLANTED_KEY", "thing": "env:PLANTED_THING"}
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        **small_spark(),
        "spark.hadoop.fs.test": "env:PLANTED_CONF",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
    }
    lines: set[str] = set()
    notebook = ROOT / "notebooks" / "20_incremental_cdc.ipynb"
    with loopback_proxy(opensearch_url, credentials=f"ann:{secrets['PLANTED_PASSWORD']}") as proxy:
        given = {
            "table": config.table,
            "index": config.index,
            "positions_index": config.positions_index,
            "identifier_columns": "id",
            "number_of_replicas": "0",
            "opensearch_url": proxy.url,
            "opensearch_username": "ann",
            "opensearch_password": "env:PLANTED_PASSWORD",
            "catalog_properties": json.dumps(catalog),
            "spark_conf": json.dumps(conf),
            "log_path": str(tmp_path / "log.jsonl"),
            "metrics_folder": str(tmp_path / "metrics"),
            "report_path": str(tmp_path / "report.json"),
        }
        arguments = [text for name, value in given.items() for text in ("-r", name, value)]
        # Without rfc3987_syntax, which jsonschema takes 4 s to load.
        code = "import sys; sys.modules['rfc3987_syntax'] = None; from papermill.cli import papermill; papermill()"
        run = [sys.executable, "-c", code, str(notebook), str(tmp_path / "out.ipynb"), "-k", "python3"]
        with (tmp_path / "out").open("wb") as out:
            process = subprocess.Popen(
                [*run, *arguments], stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(ROOT), **secrets}
            )
            while process.poll() is None:
                lines |= _command_lines()
                time.sleep(1.0)
        secrets_used = len(proxy.authorizations)
    documents = opensearch.search(index=config.positions_index, body={"size": 100})
    # The JVM ends a moment after the run, and renames its event log before it does.
    while any(str(events) in line for line in _command_lines()):
        time.sleep(0.1)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    left = {str(path): path.read_bytes().decode("utf-8", "replace") for path in files}
    left |= {"command lines": "\n".join(lines), "positions": json.dumps(documents)}
    found = [(where, name) for where, text in left.items() for name, value in secrets.items() if value in text]
    java = any("org.apache.spark.deploy.SparkSubmit" in line for line in lines)
    event_log = any("spark.hadoop.fs.test" in text for where, text in left.items() if "events" in where)
    shown = "env:PLANTED_PASSWORD" in left[str(tmp_path / "out.ipynb")]
    actual = process.returncode, secrets_used, java, event_log, shown, found
    assert actual == (0, 1, True, True, True, []), left[str(tmp_path / "out")][-3000:]


class DescribeLeastPrivilege:
    def it_needs_no_request_that_the_role_lacks(self, spark, sql, make_config, opensearch, opensearch_url, name):
        config = make_config(max_rejected_documents=1, dead_letter_table=f"lake.ns.letters_{name}")
        names = {"{physical}": f"{config.index}--{'[0-9]' * 6}", "{index}--*": f"{config.index}--[*]"}
        names |= {"{index}": config.index, "{positions}": config.positions_index}
        allowed = allowed_requests("requests", names)
        refused, used = [], set()

        def gate(method, path, headers, body):
            plain = path.partition("?")[0]
            rule = next((r for r in allowed if r[0] == method and fnmatchcase(plain, r[1])), None)
            if rule is None:
                refused.append((method, plain))
                return 403, {"error": {"type": "security_exception", "reason": "no permissions"}, "status": 403}
            used.add(rule)
            return None

        create = "CREATE TABLE {t} (id BIGINT, value DOUBLE) USING iceberg TBLPROPERTIES ('format-version' = '2')"
        sql(create, "INSERT INTO {t} VALUES (1, 1.5), (2, 2.5)")
        with loopback_proxy(opensearch_url, gate=gate) as proxy:
            through = config.replace(opensearch_url=proxy.url)
            export_table(spark, through)
            sql("ALTER TABLE {t} ADD COLUMN more STRING", "INSERT INTO {t} VALUES (3, double('NaN'), 'x')")
            sql("DELETE FROM {t} WHERE id = 1")
            sync_changes(spark, through)
            replay_dead_letters(spark, through)
            sql("UPDATE {t} SET value = 3.5 WHERE id = 3")
            sync_changes(spark, through)
            opensearch.delete(index=config.index, id="2", params={"refresh": "true"})
            repaired = validate_table(spark, through.replace(repair=True)).ok
            export_table(spark, through)
            status(spark, through)
        spark.sql(f"DROP TABLE {config.dead_letter_table}")
        assert (refused, repaired, [rule for rule in allowed if rule not in used]) == ([], True, [])


def it_listens_on_loopback_only(spark, opensearch_url):
    """This process, or the first of several test processes, and those below it."""
    first = psutil.Process(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else None)
    ours = set()
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.Error):
            ours |= {tuple(each.laddr) for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    found = int(opensearch_url.rpartition(":")[2]) in {port for _, port in ours}
    open_to_all = {host for host, _ in ours if host not in ("127.0.0.1", "::1", "::ffff:127.0.0.1")}
    assert (found or bool(os.environ.get("ICECDC_OPENSEARCH_URL")), open_to_all) == (True, set())


def _command_lines():
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found.add(" ".join(process.cmdline()))
    return found


def is_signed(method, path, headers, body, key_id, secret, region, service):
    """Whether the request carries the right signature of this key for this region and service."""
    given = r"AWS4-HMAC-SHA256 Credential=(\S+), SignedHeaders=([^,]+), Signature=([0-9a-f]{64})"
    found = re.fullmatch(given, headers.get("Authorization") or "")
    if not found or headers.get("X-Amz-Content-SHA256") not in (None, hashlib.sha256(body).hexdigest()):
        return False
    url, auth = urlsplit(path), SigV4Auth(Credentials(key_id, secret), service, region)
    signed = {name: headers.get(name) for name in found[2].split(";")}
    address, params = f"http://{headers['Host']}{url.path}", dict(parse_qsl(url.query, True))
    request = AWSRequest(method, address, signed, body, params=params)
    request.context["timestamp"] = headers["X-Amz-Date"]
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    return (found[1], found[3]) == (auth.scope(request), signature)


class Authority:
    NAME = "the tests' CA"

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file.write_bytes(self._signed(self.NAME, self._key.public_key(), x509.BasicConstraints(True, None)))

    def issue(self, name: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        is_address = name[0].isdigit()
        alternative = x509.IPAddress(ipaddress.ip_address(name)) if is_address else x509.DNSName(name)
        files = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        files[0].write_bytes(self._signed(name, key.public_key(), x509.SubjectAlternativeName([alternative])))
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        files[1].write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
        return files

    def _signed(self, name: str, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, self.NAME))
        now = datetime.now(UTC)
        times, number = (now - timedelta(hours=1), now + timedelta(days=1)), x509.random_serial_number()
        builder = x509.CertificateBuilder(issuer, subject, key, number, *times)
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
