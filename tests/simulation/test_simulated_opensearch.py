"""The simulated OpenSearch answers as a real one: the same requests go to both."""

import json

from opensearchpy.exceptions import TransportError

from tests.simulation.simulated_opensearch import SimulatedOpenSearch

ONE, TWO, THREE, WRITE, READERS = "/{t}-1", "/{t}-2", "/{t}-3", "/{t}-1--WRITE", "{t}"
MAPPINGS = {"dynamic": False, "properties": {"name": {"type": "keyword"}, "epoch": {"type": "long"}}}
BODY = {
    "settings": {"index": {"number_of_replicas": 0, "refresh_interval": "-1"}},
    "mappings": MAPPINGS,
    "aliases": {"{t}-1--WRITE": {}},
}


def index(identity, version, kind="external", at=None, **source):
    place = {"routing": at} if at else {}
    return [{"index": {"_id": identity, "version": version, "version_type": kind, **place}}, source or {"name": "x"}]


def delete(identity, version, kind="external", at=None):
    place = {"routing": at} if at else {}
    return [{"delete": {"_id": identity, "version": version, "version_type": kind, **place}}]


def bulk(path, *operations, require_alias="true"):
    lines = [line for operation in operations for line in operation]
    return ("POST", f"{path}/_bulk", {"require_alias": require_alias}, lines)


def ask(path, method="GET"):
    return (method, path, {}, None)


def put(path, identity, **params):
    return ("PUT", f"{path}/_doc/{identity}", params, {"name": "p"})


def aliases(*actions):
    return ("POST", "/_aliases", {}, {"actions": list(actions)})


def add(number, **options):
    return {"add": {"index": f"{{t}}-{number}", "alias": READERS, **options}}


def remove(number, must_exist):
    return {"remove": {"index": f"{{t}}-{number}", "alias": READERS, "must_exist": must_exist}}


SEARCH = {"query": {"bool": {"filter": [{"term": {"name": "x"}}, {"range": {"epoch": {"lte": 3}}}]}}}

REQUESTS = [
    ask(ONE, "HEAD"), ask(ONE), ask("/{t}-*"), ask(ONE, "DELETE"),
    ("DELETE", ONE, {"ignore_unavailable": "true"}, None), ("PUT", ONE, {}, BODY), ("PUT", ONE, {}, BODY),
    ask(ONE, "HEAD"), ask(WRITE),
    # External versions, and what is remembered of deleted documents.
    bulk(WRITE, index("a", 5)),
    bulk(WRITE, index("a", 5), index("a", 4), delete("a", 5), delete("a", 4), index("a", 6)),
    bulk(WRITE, delete("unseen", 7)),
    bulk(WRITE, delete("unseen", 7), index("unseen", 6), index("unseen", 7), delete("unseen", 8), index("unseen", 9)),
    bulk(WRITE, delete("a", 8), index("a", 7), index("a", 8), index("a", 9)),
    bulk(WRITE, index("a", 9, "external_gte"), index("a", 8, "external_gte")), ask(f"{ONE}/_doc/a"),
    ask(f"{ONE}/_doc/none"),
    # Versions that OpenSearch counts.
    bulk(WRITE, [{"index": {"_id": "own"}}, {"name": "o"}], [{"index": {"_id": "own"}}, {"name": "o"}]),
    bulk(WRITE, [{"delete": {"_id": "own"}}], [{"delete": {"_id": "own"}}], [{"index": {"_id": "own"}}, {"name": "o"}]),
    # Conditions.
    put(WRITE, "p", op_type="create", require_alias="true"), put(WRITE, "p", op_type="create", require_alias="true"),
    put(WRITE, "p", if_seq_no=999, if_primary_term=1), put(WRITE, "q", if_seq_no=0, if_primary_term=1),
    put(ONE, "r", require_alias="true"), put("/{t}-none", "r", require_alias="true"), bulk(ONE, index("r", 1)),
    bulk("/{t}-none", index("r", 1), delete("r", 1)),
    # Aliases: all actions or none.
    ("PUT", TWO, {}, {**BODY, "aliases": {}}), ask("/{t}"), aliases(add(1)), ask("/{t}"),
    aliases(remove(2, True), add(2)), ask("/{t}"),
    aliases(add(2), remove(2, True), {"add": {"index": "{t}-none", "alias": READERS}}), ask("/{t}"),
    aliases(remove(1, True), add(2)), ask("/{t}"), aliases(remove(1, True), add(2)),
    aliases(remove(1, False), add(2)), ("PUT", "/{t}", {}, BODY), ask("/{t}", "DELETE"),
    aliases({"remove": {"index": "{t}-2", "alias": READERS, "must_exist": True}}, add(2)), ask("/{t}"),
    # Searches find what was there at the last refresh.
    ("POST", f"{ONE}/_refresh", {}, None),
    bulk(WRITE, index("s1", 1, name="x", epoch=1), index("s2", 1, name="x", epoch=5),
         index("s3", 1, name="y", epoch=2)),
    ("POST", f"{ONE}/_search", {}, SEARCH), ("POST", f"{ONE}/_refresh", {}, None),
    ("POST", f"{ONE}/_search", {}, SEARCH), bulk(WRITE, delete("s1", 2)), ("POST", f"{ONE}/_search", {}, SEARCH),
    ("PUT", f"{ONE}/_settings", {}, {"index": {"number_of_replicas": 0}}),
    ("PUT", f"{ONE}/_mapping", {}, {"properties": {"more": {"type": "long"}}, "_meta": {"icecdc": {"run": "r"}}}),
    ("PUT", f"{ONE}/_mapping", {}, {"properties": {"more": {"type": "keyword"}}}), ask("/_alias/{t}"),
    # A write on the condition of the last one.
    ("PUT", THREE, {}, {"settings": {"index": {"number_of_shards": 2}}, "mappings": MAPPINGS}), put(THREE, "p"),
    put(THREE, "p", if_seq_no="0", if_primary_term="1"), put(THREE, "p", if_seq_no="0", if_primary_term="1"),
    # Each shard has a document of its own for an id; "y" and "z" share a shard.
    bulk(THREE, *(index("a", 5, at=place) for place in "xyz"), require_alias="false"),
    bulk(THREE, delete("a", 6, at="z"), index("a", 6, at="y"), index("a", 7, at="z"), require_alias="false"),
    bulk(THREE, delete("b", 6, at="x"), index("b", 6, at="x"), index("b", 6, at="y"), require_alias="false"),
    ("POST", f"{THREE}/_refresh", {}, None),
    ("POST", f"{THREE}/_search", {}, {"query": {"bool": {"filter": [{"term": {"name": "x"}}]}}}),
    # An alias ends with its index.
    ask(TWO, "DELETE"), ask("/_alias/{t}"), ask("/{t}"), ask("/{t}-*"),
]  # fmt: skip


def read_parts(status, answer):
    if not isinstance(answer, dict):
        return status
    kind = (answer.get("error") or {}).get("type") if isinstance(answer.get("error"), dict) else None
    parts = {name: answer[name] for name in ("found", "result", "_version", "acknowledged") if name in answer}
    if "items" in answer:
        outcomes = [next(iter(item.items())) for item in answer["items"]]
        parts["items"] = [
            (operation, each["status"], each.get("_version"), (each.get("error") or {}).get("type"))
            for operation, each in outcomes
        ]
        reasons = [(each.get("error") or {}).get("reason", "") for _, each in outcomes]
        parts["current versions"] = [reason.partition("current version ")[2].partition(" ")[0] for reason in reasons]
    if "hits" in answer:
        parts["hits"] = sorted((hit["_id"], hit.get("_routing", "")) for hit in answer["hits"]["hits"])
    if all(isinstance(entry, dict) and "aliases" in entry for entry in answer.values()):
        parts["indexes"] = {
            name: (sorted(entry["aliases"]), sorted(entry.get("mappings", {}).get("properties", {})))
            for name, entry in answer.items()
        }
    return status, kind, parts


def it_answers_as_a_real_one(opensearch, name):
    simulated, different = SimulatedOpenSearch(), []

    def real(method, path, params, body):
        try:
            answer = opensearch.transport.perform_request(method, path, params=params, body=body)
        except TransportError as error:
            return read_parts(error.status_code, error.info)
        if method == "HEAD":
            return 200 if answer else 404
        return read_parts(200, answer)

    for method, path, params, body in json.loads(json.dumps(REQUESTS).replace("{t}", name)):
        lines = "".join(json.dumps(line) + "\n" for line in body) if isinstance(body, list) else body
        expected = real(method, path, dict(params), lines)
        status, answer = simulated.answer(method, path, params, body)
        actual = read_parts(200 if status == 201 else status, None if method == "HEAD" else answer)
        if expected != actual:
            different.append((method, path, body, expected, actual))
    opensearch.indices.delete(index=f"{name}-*", params={"expand_wildcards": "all", "ignore_unavailable": "true"})
    assert different == []
