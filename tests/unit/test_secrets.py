"""References to secrets: resolved, or refused with a typed error."""

import sys
from types import SimpleNamespace

import pytest

from icecdc_core.errors import SecretError
from icecdc_core.secrets import Properties, is_reference, looks_secret, resolve


class DescribeReferences:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("env:A_1", True),
            ("secret:scope/key", True),
            ("secret:scope/a/b", True),
            ("env:", False),
            ("env:1A", False),
            ("env:A B", False),
            ("secret:scope", False),
            ("secret:/key", False),
            ("hunter2", False),
            ("", False),
        ],
    )
    def it_distinguishes_references_from_secrets(self, text, expected):
        assert is_reference(text) is expected

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("jdbc.password", True),
            ("s3.secret-access-key", True),
            ("s3.access-key-id", True),
            ("fs.s3a.access.key", True),
            ("oauth2-token", True),
            ("credential", True),
            ("adls.sas-token.account", True),
            ("header.Authorization", True),
            ("type", False),
            ("tokenizer", False),
            ("analysis.analyzer.a.tokenizer", False),
            ("max_token_length", False),
            ("token_count", False),
            ("token", True),
            ("access_tokens", True),
            ("uri", False),
            ("warehouse", False),
            ("jdbc.schema-version", False),
        ],
    )
    def it_knows_which_names_hold_secrets(self, name, expected):
        assert looks_secret(name) is expected


class DescribeResolve:
    @pytest.fixture
    def dbutils(self):
        secrets = {("scope", "key"): "hunter2"}
        return SimpleNamespace(secrets=SimpleNamespace(get=lambda scope, key: secrets[scope, key]))

    def it_reads_the_environment(self, monkeypatch):
        monkeypatch.setenv("ICECDC_TEST_SECRET", "hunter2")
        assert resolve("env:ICECDC_TEST_SECRET", "p") == "hunter2"

    @pytest.mark.parametrize(
        ("reference", "message"),
        [
            ("env:NOT_SET_ANYWHERE", r"env:NOT_SET_ANYWHERE.*Remedy: export NOT_SET_ANYWHERE"),
            ("hunter2", r"not a reference to a secret \(its value is not shown\)"),
            ("secret:scope/key", "on Databricks only"),
        ],
    )
    def it_says_what_cannot_be_read(self, reference, message):
        with pytest.raises(SecretError, match=message) as raised:
            resolve(reference, "p")
        assert "hunter2" not in str(raised.value)

    def it_reads_databricks_secrets_and_names_one_that_cannot_be_read(self, monkeypatch, dbutils):
        monkeypatch.setattr(sys.modules["__main__"], "dbutils", dbutils, raising=False)
        assert resolve("secret:scope/key", "p") == "hunter2"
        with pytest.raises(SecretError, match=r"KeyError.*secret:scope/other"):
            resolve("secret:scope/other", "p")

    def it_finds_dbutils_of_a_notebook(self, monkeypatch, dbutils):
        shell = SimpleNamespace(user_ns={"dbutils": dbutils})
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
        assert resolve("secret:scope/key", "p") == "hunter2"


class DescribeProperties:
    def it_is_a_mapping_that_hides_secrets(self):
        properties = Properties({"type": "rest", "token": "hunter2", "credential": "env:C"})
        assert repr(properties) == "{'type': 'rest', 'token': '***', 'credential': 'env:C'}"
        assert dict(properties)["token"] == "hunter2"
