"""`ExploreConfig`: the parameters of an index, and what a person wants to see of it."""

import json
from typing import Annotated

from pydantic import BeforeValidator, Field

from icecdc_core.config import SyncConfig


def _as_text(given: object) -> object:
    """Papermill or a file may pass a number or a mapping."""
    is_text_in_json = isinstance(given, int | float | dict) and not isinstance(given, bool)
    return json.dumps(given) if is_text_in_json else given


Text = Annotated[str, BeforeValidator(_as_text)]


class ExploreConfig(SyncConfig):
    """The parameters of an index, and what to look at; nothing is written, whatever they say."""

    from_snapshot: Text = ""
    """Snapshot before the changes: an id, a branch or tag, position, earliest (before the first) or -1, -2 and so on to
    count back from current. Default: position; if that is current, before the newest change."""
    to_snapshot: Text = ""
    """Snapshot with the changes: as from_snapshot, or current. Default: current."""
    document_id: Text = ""
    """The _id of the document to look up. Default: one that changed."""
    query: Text = ""
    """Query to try: a query string, or an OpenSearch query as JSON. Default: all documents."""
    sample_rows: Annotated[int, Field(ge=1, le=1000)] = 20
    """Changes and documents to show at most (1 to 1000)."""
    max_snapshots: Annotated[int, Field(ge=1, le=500)] = 25
    """Newest snapshots to show, and to search for a document's history (1 to 500)."""


class ExplainConfig(SyncConfig):
    """The parameters of an index, and the document to explain."""

    id: Annotated[Text, Field(min_length=1)]
    """The _id of the document: identifier values, joined with |."""
