"""Searches that the demo tries: places, codes, nested fields, one shard, a masked value; and commands."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from demo.model import vector
from demo.workspace import display_path

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

TAIL_NUMBER = "N725MQ"


class Search(NamedTuple):
    """A question, the search that answers it, and how its answer reads."""

    question: str
    target: str
    body: dict[str, Any]
    answer: Callable[[dict[str, Any]], str]
    routing: str = ""


def _names(found: dict[str, Any]) -> str:
    return ", ".join(hit["_source"]["name"] for hit in found["hits"]["hits"])


def _total(found: dict[str, Any]) -> str:
    return f"{found['hits']['total']['value']:,}"


def _total_of_shards(found: dict[str, Any]) -> str:
    return f"{_total(found)}, from {found['_shards']['total']} of 3 shards"


def _count(*filters: dict[str, Any]) -> dict[str, Any]:
    return {"size": 0, "track_total_hits": True, "query": {"bool": {"filter": [*filters]}}}


OF_AIRPORTS = (
    Search(
        "Which airports are within 15 km of the Empire State Building, the nearest first?",
        "demo-airports",
        {
            "size": 3,
            "query": {"geo_distance": {"distance": "15km", "place": {"lat": 40.7484, "lon": -73.9857}}},
            "sort": [{"_geo_distance": {"place": {"lat": 40.7484, "lon": -73.9857}}}],
        },
        _names,
    ),
    Search(
        "Which airport has a name like 'San Fransisco Intl', by its vector?",
        "demo-airports",
        {"size": 1, "query": {"knn": {"name_vector": {"vector": vector("San Fransisco Intl"), "k": 1}}}},
        _names,
    ),
)
OF_FLIGHTS = (
    Search(
        "How many United flights left LaGuardia more than two hours late?",
        "demo-flights",
        _count({"term": {"carrier": "UA"}}, {"term": {"origin": "LGA"}}, {"range": {"dep_delay": {"gt": 120}}}),
        _total,
    ),
    Search(
        "How many flights took a Boeing to an airport above 5,000 feet? The plane and the airport are nested.",
        "demo-flights",
        _count({"term": {"plane.manufacturer": "BOEING"}}, {"range": {"dest_airport.alt": {"gt": 5000}}}),
        _total,
    ),
    Search(
        "How many flights left JFK for Honolulu? Documents are routed by their origin.",
        "demo-flights",
        _count({"term": {"origin": "JFK"}}, {"term": {"dest": "HNL"}}),
        _total_of_shards,
        routing="JFK",
    ),
    Search(
        f"How many flights had the plane {TAIL_NUMBER}, whose number is in no document?",
        "demo-flights",
        _count({"term": {"aircraft": hashlib.sha256(TAIL_NUMBER.encode()).hexdigest()}}),
        _total,
    ),
)
AFTER_THE_DAY = (
    Search(
        "How many flights did the new name of an airline rewrite? The airline is nested in each of them.",
        "demo-flights",
        _count({"match_phrase": {"airline.name": "Alaska Air Group"}}),
        _total,
    ),
)


def answers(client: OpenSearch, searches: Iterable[Search]) -> Iterator[str]:
    """Try searches; yields each with its question and its answer, as text."""
    for search in searches:
        client.indices.refresh(index=search.target)
        routing = {"routing": search.routing} if search.routing else {}
        found = client.search(index=search.target, body=search.body, params=routing)
        path = f"{search.target}/_search{f'?routing={search.routing}' if search.routing else ''}"
        query = textwrap.shorten(json.dumps(search.body["query"]), 200, placeholder=" ...")  # a vector is long
        yield f"{search.question}\n  GET {path} {query}\n  {search.answer(found)}"


def commands_to_try(parameters: Mapping[str, Any], index_file: Path) -> list[str]:
    """Return two commands to paste in the clone: a search for the longest delay, and the state of all indexes."""
    url, user = parameters["opensearch_url"], parameters["opensearch_username"]
    curl = ["curl", *(["--user", user] if user else [])]
    curl.append(f"{url}/demo-flights/_search?q=dest:SFO&sort=arr_delay:desc&size=1&pretty")
    program = Path(sys.executable).with_name("icecdc")
    status = [display_path(program)] if program.exists() else [sys.executable, "-m", "icecdc_core"]
    status += ["status", "--file", display_path(index_file)]
    for name in ("opensearch_url", "opensearch_username", "opensearch_password", "warehouse"):
        status += [f"--{name.replace('_', '-')}", str(parameters[name])] if parameters[name] else []
    properties = ' --catalog-properties "$ICECDC_CATALOG_PROPERTIES"' if parameters["catalog_properties"] else ""
    return [f"  {shlex.join(curl)}", f"  {shlex.join(status)}{properties}"]
