"""Check a request's AWS Signature Version 4 as the service does, from the specification and by no code of a client."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlsplit


def is_signed(
    method: str, path: str, headers: Mapping[str, str], body: bytes, key_id: str, secret: str, region: str, service: str
) -> bool:
    """Whether the request carries the right signature of this key for this region and service."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
        r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})",
        headers.get("Authorization") or "",
    )
    if not found or (found[1], found[3], found[4]) != (key_id, region, service):
        return False
    url = urlsplit(path)
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(url.query, True))
    names = found[5].split(";")
    payload = hashlib.sha256(body).hexdigest()
    if "host" not in names or headers.get("X-Amz-Content-SHA256") not in (None, payload):
        return False
    canonical = "\n".join(
        [
            method,
            quote(url.path, safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join((headers.get(name) or '').split())}" for name in names),
            "",
            found[5],
            payload,
        ]
    )
    scope = f"{found[2]}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", headers["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (found[2], region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), found[6])
