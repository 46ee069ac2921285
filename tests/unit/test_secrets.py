"""References to secrets: resolved, or refused with a typed error."""

import sys
from types import SimpleNamespace

import pytest

from icecdc_core.errors import SecretError
from icecdc_core.secrets import is_reference, looks_secret, mask_secrets, resolve

REFERENCES = ("env:A_1", "secret:scope/key", "secret:scope/a/b")
NO_REFERENCES = ("env:", "env:1A", "env:A B", "secret:scope", "secret:/key", "hunter2", "")
SECRET_NAMES = (
    *("jdbc.password", "s3.secret-access-key", "s3.access-key-id", "fs.s3a.access.key", "oauth2-token", "credential"),
    *("adls.sas-token.account", "header.Authorization", "token", "access_tokens", "header.Cookie", "jdbc.pwd"),
    *("ssl.keystore.key", "gcs.decryption-key", "s3.sse.key", "basic.auth.user.info", "connection-string"),
)
OTHER_NAMES = (
    *("type", "tokenizer", "analysis.analyzer.a.tokenizer", "max_token_length", "token_count", "uri", "warehouse"),
    *("jdbc.schema-version", "ssl.truststore.location", "s3.sse.type", "user", "key.converter"),
)


def it_distinguishes_references_from_secrets_and_knows_which_names_hold_secrets():
    assert [is_reference(each) for each in (*REFERENCES, *NO_REFERENCES)] == [True] * 3 + [False] * 7
    assert [name for name in (*SECRET_NAMES, *OTHER_NAMES) if looks_secret(name)] == [*SECRET_NAMES]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('password="Endpoint=sb://x/;SharedAccessKey=hunter2";', "password=***;"),
        (r'{"jaas": "x password=\"a;hunter2\" y"}', r'{"jaas": "x password=*** y"}'),
        (r'password="a\"hunter2" y', "password=*** y"),
        ("password='a hunter2\nnext", "password=***\nnext"),
        ("jdbc:x?user=a&password=hunter2&ssl=true", "jdbc:x?user=a&password=***&ssl=true"),
        ("https://user:p@hunter2@host/a@b", "https://***@host/a@b"),
        ("SharedAccessKey=hunter2; fs.azure.account.key.x = hunter2",
            "SharedAccessKey=***; fs.azure.account.key.x = ***"),
        (r"Invalid header value b'Bearer hunter2\n'", "Invalid header value b'Bearer ***"),
        ("Authorization: Basic aHVudGVyMg==, next", "Authorization: Basic ***, next"),
        ("Endpoint=sb://x/;SharedAccessSignature=hunter2;x=y", "Endpoint=sb://x/;SharedAccessSignature=***;x=y"),
        ("a -----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY----- b", "a *** b"),
        ("-Ddisabled=Basic -Dx=y", "-Ddisabled=Basic -Dx=y"),
        ("-Dhttps.proxyPassword=hunter2 -Dx=y", "-Dhttps.proxyPassword=*** -Dx=y"),
        ("https://a/f?sv=1&sig=a%2Fb&X-Amz-Signature=c", "https://a/f?sv=1&sig=***&X-Amz-Signature=***"),
        ("0" * 100_000, "0" * 100_000),
        ("Basic authentication failed", "Basic authentication failed"),
        ("key=value and keys = 3, token_type", "key=value and keys = 3, token_type"),
    ],
)  # fmt: skip
def it_masks_secrets_whole_in_a_text(text, expected):
    assert mask_secrets(text) == expected


class DescribeResolve:
    def it_says_what_cannot_be_read(self):
        for reference, message in (
            ("env:NOT_SET_ANYWHERE", r"env:NOT_SET_ANYWHERE.*Remedy: export NOT_SET_ANYWHERE"),
            ("hunter2", r"not a reference to a secret \(its value is not shown\)"),
            ("secret:scope/key", "on Databricks only"),
        ):
            with pytest.raises(SecretError, match=message) as raised:
                resolve(reference, "p")
            assert "hunter2" not in str(raised.value)

    def it_reads_the_environment_and_databricks_secrets_and_names_one_that_cannot_be_read(self, monkeypatch):
        monkeypatch.setenv("ICECDC_TEST_SECRET", "hunter2")
        assert resolve("env:ICECDC_TEST_SECRET", "p") == "hunter2"
        secrets = {("scope", "key"): "hunter2"}
        dbutils = SimpleNamespace(secrets=SimpleNamespace(get=lambda scope, key: secrets[scope, key]))
        monkeypatch.setattr(sys.modules["__main__"], "dbutils", dbutils, raising=False)
        assert resolve("secret:scope/key", "p") == "hunter2"
        with pytest.raises(SecretError, match=r"KeyError.*secret:scope/other"):
            resolve("secret:scope/other", "p")
