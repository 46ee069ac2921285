"""OpenLineage: from which tables to which index a run went, sent to the server that `OPENLINEAGE_URL` names."""

import json
import logging
import os
import uuid
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import shorten
from icecdc_core.logs import event
from icecdc_core.reporting.exit_states import reason_without_values, utc_now
from icecdc_core.secrets import mask_secrets
from icecdc_core.table.source import Source

# As OpenLineage's Java client does: these schemes have no slash before the path, and one name for all their spellings.
_OBJECT_STORES = frozenset({"s3", "gs", "abfss", "wasbs"})
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}
_READERS = ("validate", "explain")
_PRODUCER, _SPEC = "https://pypi.org/project/icecdc", "https://openlineage.io/spec"


def table_name(location: str) -> tuple[str, str]:
    """Return namespace and name of a table: `s3a://lake/shop/orders` gives `s3://lake` and `shop/orders`."""
    parts = urlsplit(location)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    if scheme in ("", "file"):
        return "file", parts.path.rstrip("/")
    name = parts.path.strip("/") if scheme in _OBJECT_STORES else parts.path.rstrip("/")
    user, _, host = parts.netloc.rpartition("@")
    # A user with a password is no part of the name; the container of an Azure store is.
    return f"{scheme}://{host if ':' in user else parts.netloc}", name


def send_lineage(
    config: ParameterModel, source: Source | None, began_at: str, facts: Mapping[str, Any], error: BaseException | None
) -> None:
    """Send the start and the end of a run from tables to an index, if the environment names a server."""
    is_off = os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true"
    if not os.environ.get("OPENLINEAGE_URL") or is_off or not isinstance(config, SyncConfig):
        return
    if error is None and config.polls and not facts.get("stage_seconds", {}).keys() - {"check"}:
        return
    ended = "COMPLETE" if error is None else "FAIL" if isinstance(error, Exception) else "ABORT"
    identity = {name: facts[name] for name in ("job", "run_id")}
    if _post(_event(config, source, "START", began_at, identity, None)):
        _post(_event(config, source, ended, utc_now(), facts, error))


def _event(
    config: SyncConfig,
    source: Source | None,
    state: str,
    at: str,
    facts: Mapping[str, Any],
    error: BaseException | None,
) -> dict[str, Any]:
    job, url = facts["job"], urlsplit(config.opensearch_url)
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    port = url.port or {"http": 80, "https": 443}.get(url.scheme, 9200)
    index = {"namespace": f"opensearch://{host}:{port}", "name": config.index}
    read: list[dict[str, Any]] = [index] if job in _READERS else []
    if source is not None:
        namespace, name = table_name(source.metadata.location)
        version = facts.get("to_snapshot_id") or facts.get("snapshot_id") or source.head
        facet = _facet("DatasetVersionDatasetFacet", datasetVersion=str(version))
        read.insert(0, {"namespace": namespace, "name": name, "facets": {"version": facet} if version else {}})
    only_reads = config.dry_run or (job in _READERS and not facts.get("repaired"))
    about = {}
    if len(parent := os.environ.get("OPENLINEAGE_PARENT_ID", "").rsplit("/", 2)) == 3:
        of_run, of_job = {"runId": parent[2]}, {"namespace": parent[0], "name": parent[1]}
        about["parent"] = _facet("ParentRunFacet", run=of_run, job=of_job)
    if error is not None:
        about["errorMessage"] = _facet(
            "ErrorMessageRunFacet", message=reason_without_values(error), programmingLanguage="python"
        )
    return {
        "eventType": state,
        "eventTime": at,
        "producer": _PRODUCER,
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(uuid.UUID(facts["run_id"])), "facets": about},
        "job": {
            "namespace": os.environ.get("OPENLINEAGE_NAMESPACE") or "default",
            "name": f"icecdc.{job}.{config.index}",
        },
        "inputs": read,
        "outputs": [] if only_reads else [index],
    }


def _facet(kind: str, **values: Any) -> dict[str, Any]:
    return {"_producer": _PRODUCER, "_schemaURL": f"{_SPEC}/facets/1-0-1/{kind}.json#/$defs/{kind}", **values}


def _post(sent: dict[str, Any]) -> bool:
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENLINEAGE_API_KEY", "").strip():  # a line break of a file, which an error would show
        headers["Authorization"] = f"Bearer {key}"
    try:
        url = f"{os.environ['OPENLINEAGE_URL'].rstrip('/')}/api/v1/lineage"
        if "@" in url:  # urllib's error would show it
            raise ValueError("OPENLINEAGE_URL must not contain a user or a password")
        request = Request(url, json.dumps(sent).encode(), headers)  # noqa: S310 (the user names the server)
        with urlopen(request, timeout=2.0):  # noqa: S310
            return True
    except (OSError, HTTPException, ValueError) as error:
        reason = shorten(mask_secrets(f"{type(error).__name__}: {error}"), 300)
        event(f"cannot reach a monitoring system: OpenLineage: {reason}", logging.WARNING)
        return False
