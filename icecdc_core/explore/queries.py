"""A query against the index: its hits, how many there are, and how long it took."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opensearchpy.exceptions import RequestError

from icecdc_core.documents.example_queries import example_queries
from icecdc_core.documents.mapping import index_mapping
from icecdc_core.errors import ConfigError, IcecdcError
from icecdc_core.explore.figures import Part, heading, paragraphs, table, value_text
from icecdc_core.explore.rows import Document
from icecdc_core.explore.view import OTHER_DOCUMENTS
from icecdc_core.reporting.figures import Cell

if TYPE_CHECKING:
    import pandas as pd

    from icecdc_core.explore.view import View

_MOST_FIELDS = 12
_MOST_EXAMPLES = 8
# What makes a JSON object the body of a search, and not a query alone.
_BODY_KEYS = frozenset({"query", "sort", "from", "size", "knn", "min_score", "post_filter", "collapse"})


@dataclass(frozen=True, repr=False)
class QueryResult(Part):
    """What the index answered."""

    query: Any
    total: int | None = None
    took_ms: int = 0
    seconds: float = 0.0
    hits: tuple[tuple[str, float | None, Document], ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    problem: str = ""

    @property
    def line(self) -> str:
        """How many hits there are, and the time it took."""
        return self.problem if self.total is None else f"{self.total:,} hits in {self.took_ms:,} ms"

    def table(self) -> pd.DataFrame:
        """The hits, a row for each."""
        import pandas as pd

        return pd.DataFrame([{"_id": identity, "_score": score, **fields} for identity, score, fields in self.hits])

    def to_dict(self) -> dict[str, Any]:
        """The counts and times, for the report."""
        return {"hits": self.total, "took_ms": self.took_ms, "seconds": self.seconds, "problem": self.problem}

    def _repr_html_(self) -> str:
        if self.total is None:
            return paragraphs(self.problem)
        fields = list(dict.fromkeys(name for _, _, document in self.hits for name in document))
        rows: list[tuple[str | Cell, ...]] = [
            (
                identity,
                "" if score is None else f"{score:.3g}",
                *(Cell(value_text(hit.get(name))) for name in fields[:_MOST_FIELDS]),
            )
            for identity, score, hit in self.hits
        ]
        shown = f"{self.total:,} hits in {self.took_ms:,} ms ({self.seconds:.2f} s until they were here)"
        more = f"; {len(fields) - _MOST_FIELDS} more fields are not shown" if fields[_MOST_FIELDS:] else ""
        text = heading(f"{shown}; the first {len(rows):,}{more}") if rows else heading(shown)
        text += paragraphs(json.dumps(self.query, ensure_ascii=False))
        if rows:
            text += table(("_id", "score", *fields[:_MOST_FIELDS]), rows)
        return text + heading("Queries to try") + table(("field", "query"), self.examples)


def try_query(view: View) -> QueryResult:
    """Ask the index what the parameter ``query`` says; without one, for all documents."""
    body = search_body(view.config.query, view.config.sample_rows)
    if view.missing:
        return QueryResult(body["query"], problem=view.missing)
    if view.hides_documents:
        problem = f"{OTHER_DOCUMENTS}, so its documents are not shown here."
        return QueryResult(body["query"], problem=problem)
    try:
        with view.searching("trying a query") as client:
            begin = time.monotonic()
            answer = _answer(client, view, body)
    except ConfigError:
        raise
    except IcecdcError as error:
        return QueryResult(body["query"], problem=f"The index cannot be read. {error}")
    hits = tuple(
        (hit["_id"], hit.get("_score"), view.visible_fields(hit.get("_source") or {})) for hit in answer["hits"]["hits"]
    )
    return QueryResult(
        body["query"],
        int(answer["hits"]["total"]["value"]),
        int(answer["took"]),
        round(time.monotonic() - begin, 3),
        hits,
        _examples(view),
    )


def search_body(given: str, most: int) -> dict[str, Any]:
    """Return the body of a search. Pure."""
    if not given.startswith("{"):
        asked = {"query_string": {"query": given, "lenient": True}} if given else {"match_all": {}}
        return {"query": asked, "size": most, "track_total_hits": True}
    found = json.loads(given)
    if not _BODY_KEYS & found.keys():
        found = {"query": found}
    size = found.get("size")
    size = min(size, most) if isinstance(size, int) else most
    return {"query": {"match_all": {}}, **found, "size": size, "track_total_hits": True}


def _answer(client: Any, view: View, body: dict[str, Any]) -> Any:
    try:
        return client.search(index=view.config.index, body=body)
    except RequestError as error:
        info = error.info if isinstance(error.info, dict) else {}
        causes = (info.get("error") or {}).get("root_cause") if isinstance(info.get("error"), dict) else None
        reason = causes[0].get("reason") if causes else error.error
        raise ConfigError(
            f"OpenSearch refuses the query: {reason}",
            subject="query",
            value=view.config.query,
            remedy='give a query string such as name:word, or a query as JSON such as {"match": {"name": "word"}}',
        ) from error


def _examples(view: View) -> tuple[tuple[str, str], ...]:
    source, config = view.source, view.config
    properties = index_mapping(source.schema, config.mapping, config.pipeline_fields)["properties"]
    found = ((name, example_queries(properties, name)) for name in properties)
    return tuple((name, json.dumps(queries[0])) for name, queries in found if queries)[:_MOST_EXAMPLES]
