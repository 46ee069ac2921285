"""Bulk requests as slices of an Arrow column of actions: cut by size, sent without copying a byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa


def bulk_requests(actions: pa.Array, bulk_bytes: int) -> Iterator[pa.Array]:
    """Cut a column of actions into requests."""
    if isinstance(actions, pa.ChunkedArray):
        actions = actions.combine_chunks()
    offsets = _offsets(actions)
    start = 0
    while start < len(actions):
        limit = offsets[start] + bulk_bytes
        stop = max(int(np.searchsorted(offsets[1:], limit, side="right")), start + 1)
        yield actions[start:stop]
        start = stop


def request_body(actions: pa.Array) -> memoryview:
    """Return the concatenated text of all actions, which is the body of a bulk request; nothing is copied."""
    offsets = _offsets(actions)
    return memoryview(actions.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def are_upserts(actions: pa.Array) -> np.ndarray[Any, Any]:
    """Return for each action whether it is an `index` operation; else it is a `delete` operation."""
    # The third character of {"index" and {"delete" distinguishes them.
    starts = _offsets(actions)[:-1]
    kinds: np.ndarray[Any, Any] = np.frombuffer(actions.buffers()[2], dtype=np.uint8)[starts + 2] == ord("i")
    return kinds


def document_id_of(action: str) -> str:
    """Return the id of the document that an action writes or deletes."""
    (header,) = json.loads(action.split("\n", 1)[0]).values()
    return str(header["_id"])


def _offsets(actions: pa.Array) -> np.ndarray[Any, Any]:
    width = np.int64 if pa.types.is_large_string(actions.type) else np.int32
    offsets = np.frombuffer(actions.buffers()[1], dtype=width)
    return offsets[actions.offset : actions.offset + len(actions) + 1]
