"""Truth tables: which answers are OpenSearch's, and which are of something in between."""

from __future__ import annotations

import json

import pytest
from opensearchpy.exceptions import NotFoundError, TransportError

from icecdc_core.opensearch.client import (
    AnswerConnection,
    AnswerReader,
    UnusableAnswerError,
    is_transient,
    require_usable,
    typed_error,
)
from icecdc_core.reporting.exit_states import state_of

JSON = "application/json; charset=UTF-8"


class DescribeRequireUsable:
    @pytest.mark.parametrize(
        ("method", "path", "answer"),
        [
            ("GET", "/", {"version": {"number": "2.19.1"}}),
            ("HEAD", "/films", True),
            ("GET", "/films", {"films--000001": {"aliases": {}}}),
            ("GET", "/_alias/films", {"films--000001": {"aliases": {}}}),
            ("DELETE", "/films--000001", {"acknowledged": True}),
            ("POST", "/_aliases", {"acknowledged": True}),
            ("GET", "/positions/_doc/position:films", {"_seq_no": 1, "_primary_term": 1, "_source": {}}),
            ("PUT", "/positions/_doc/position:films", {"_seq_no": 1, "_primary_term": 1}),
            ("POST", "/films/_search", {"hits": {"hits": []}}),
            ("POST", "/_search", '{"hits":{"hits":[]}}'),
            ("POST", "/films/_search/point_in_time", {"pit_id": "x"}),
            ("DELETE", "/_search/point_in_time", {"pits": []}),
            ("GET", "/_cluster/health", {"status": "green"}),
        ],
    )
    def it_accepts_answers_of_opensearch(self, method, path, answer):
        require_usable(method, path, answer)

    @pytest.mark.parametrize(
        ("method", "path", "answer"),
        [
            ("GET", "/", {}),
            ("GET", "/", ""),
            ("GET", "/films", {"message": "ok"}),
            ("PUT", "/films", {}),
            ("POST", "/_aliases", {"message": "ok"}),
            ("GET", "/positions/_doc/position:films", {"message": "ok"}),
            ("GET", "/positions/_doc/position:films", {"_seq_no": 1, "_primary_term": 1}),
            ("PUT", "/positions/_doc/position:films", {"_seq_no": None, "_primary_term": 1}),
            ("POST", "/films/_refresh", {}),
            ("POST", "/films/_search", {"hits": None}),
            ("POST", "/films/_search", {"hits": {"total": 3}}),
            ("POST", "/films/_search/point_in_time", {"hits": {"hits": []}}),
            ("GET", "/films/_search_shards", {"hits": {"hits": []}}),
            ("GET", "/films/_count", {}),
        ],
    )
    def it_refuses_what_opensearch_never_answers(self, method, path, answer):
        with pytest.raises(UnusableAnswerError):
            require_usable(method, path, answer)


class DescribeAnswerReader:
    @pytest.mark.parametrize("text", ['{"a": [1, "é"]}', '{"a": "\\ud800"}'], ids=["ordinary", "a lone surrogate"])
    def it_reads_json_with_any_declared_character_set(self, text):
        assert AnswerReader(True).loads(text, JSON) == json.loads(text)

    @pytest.mark.parametrize("parses", [True, False])
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("<html>", "text/html"),
            ("<html>", JSON),
            ('{"a": ', JSON),
            ("", JSON),
            ("garbage", None),
            ("[" * 200_000, JSON),
        ],
    )
    def it_refuses_everything_else(self, text, kind, parses):
        with pytest.raises(UnusableAnswerError):
            AnswerReader(parses).loads(text, kind)

    def it_leaves_the_answer_of_a_search_as_it_is_where_nothing_is_parsed(self):
        assert AnswerReader(False).loads('{"hits":{"hits":[]}}', JSON) == '{"hits":{"hits":[]}}'


class DescribeAnswerConnection:
    @pytest.mark.parametrize(
        ("status", "text", "kind", "expected"),
        [
            (404, '{"found":false}', JSON, NotFoundError),
            (404, "", JSON, NotFoundError),
            (404, "<html>", "text/html", UnusableAnswerError),
            (404, "null", JSON, UnusableAnswerError),
            (409, "<html>", "text/html", UnusableAnswerError),
            (503, "<html>", "text/html", TransportError),
            (503, "[]", JSON, TransportError),
            (502, "{cut", JSON, TransportError),
            (404, "[" * 200_000, JSON, UnusableAnswerError),
        ],
    )
    def it_accepts_404_and_409_only_from_opensearch(self, status, text, kind, expected):
        with pytest.raises(TransportError) as caught:
            AnswerConnection()._raise_error(status, text, kind)
        assert type(caught.value) is expected

    def it_is_retried_and_ends_with_the_state_retry(self):
        with pytest.raises(UnusableAnswerError) as caught:
            AnswerConnection()._raise_error(404, "<html>", "text/html")
        error = typed_error(caught.value, "http://127.0.0.1:9200", "reading the position")
        assert (is_transient(caught.value), state_of(error)) == (True, "retry")
