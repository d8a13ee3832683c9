"""Write an object to an S3 store only if there is none of that name: what a commit needs.

The native file system has no such call, so the request is made and signed here (AWS Signature
Version 4), with the storage section's own credentials.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from headrace.delta.access import RefusedError
from headrace.exceptions import UnsupportedWriteError
from headrace.profiles.storage import Storage

_ATTEMPTS = 4
_TIMEOUT_S = 60
_TAKEN = 412
# Someone else is creating it at this moment; whether they will have is not known yet.
_CONFLICT = 409
_SERVER_ERROR = 500
_REFUSED = (400, 401, 403)
_CODE = re.compile(r"<Code>(\w+)</Code>")


def put_if_absent(storage: Storage, path: str, content: bytes) -> bool:
    """Create an object; False when there was one.

    An answer that is lost is asked for again: the second request finds the object, and the caller
    recognises its own commit in it.

    Args:
        storage: Endpoint and credentials.
        path: Bucket and key, with a slash between them.
        content: What to store.

    Raises:
        RefusedError: The store refuses the credentials.
        OSError: The store did not take it, or did not answer.
        UnsupportedWriteError: There are no credentials to sign with.
    """
    if storage.access_key is None or storage.secret_key is None:
        raise UnsupportedWriteError(
            table=f"s3://{path.partition('/_delta_log/')[0]}",
            feature="a store whose credentials are not in [storage]",
            found="A commit has to be signed with them.",
            fix="set access_key and secret_key in [storage], or write it with Spark",
        )
    problem = ""
    for attempt in range(_ATTEMPTS):
        time.sleep(0.2 * attempt)
        try:
            status, text = _put(storage, path, content)
        except (OSError, http.client.HTTPException) as error:
            problem = f"{type(error).__name__}: {error}"
            continue
        if status == _TAKEN:
            return False
        if status < 300:  # noqa: PLR2004 - HTTP's success
            return True
        if status in _REFUSED and not problem:  # else an earlier request may have been taken
            code = _CODE.search(text)
            raise RefusedError(code[1] if code else f"HTTP {status}", "PutObject")
        problem = f"HTTP {status}: {text[:200]}"
        if status < _SERVER_ERROR and status != _CONFLICT:
            break
    raise OSError(f"the store did not take {path}: {problem}")


def _put(storage: Storage, path: str, content: bytes) -> tuple[int, str]:
    host, url, secure = _address(storage, path)
    headers = {
        "Content-Type": "application/json",
        "Host": host,
        "If-None-Match": "*",
        "X-Amz-Content-Sha256": hashlib.sha256(content).hexdigest(),
    }
    headers = signed(storage, "PUT", url, headers, datetime.now(UTC))
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(host, timeout=_TIMEOUT_S)
    try:
        connection.request("PUT", url, body=content, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def _address(storage: Storage, path: str) -> tuple[str, str, bool]:
    """Host, encoded path and whether TLS is used."""
    bucket, _, key = path.partition("/")
    endpoint = storage.endpoint or f"https://s3.{storage.region}.amazonaws.com"
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    secure = parts.scheme == "https"
    if not secure and not storage.allow_http:
        raise OSError(f"{parts.netloc} has no TLS, and [storage] has allow_http = false")
    base, key = parts.path.rstrip("/"), quote(key, safe="/-_.~")
    if storage.path_style:
        return parts.netloc, f"{base}/{quote(bucket, safe='')}/{key}", secure
    return f"{bucket}.{parts.netloc}", f"{base}/{key}", secure


def signed(
    storage: Storage, method: str, url: str, headers: Mapping[str, str], now: datetime
) -> dict[str, str]:
    """The headers with the signature over them.

    Args:
        storage: Credentials and region.
        method: HTTP method.
        url: Encoded path, perhaps with an encoded query.
        headers: Headers to send; `X-Amz-Content-Sha256` is among them.
        now: Time of the request, UTC.
    """
    if storage.access_key is None or storage.secret_key is None:
        raise ValueError("nothing to sign with")
    moment, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    found = {**headers, "X-Amz-Date": moment}
    if storage.session_token is not None:
        found["X-Amz-Security-Token"] = storage.session_token.get_secret_value()
    lower = {name.lower(): value.strip() for name, value in sorted(found.items())}
    names = ";".join(sorted(lower))
    path, _, query = url.partition("?")
    given = sorted(part if "=" in part else f"{part}=" for part in query.split("&") if part)
    canonical = "\n".join(
        [
            method,
            path,
            "&".join(given),
            *(f"{name}:{lower[name]}" for name in sorted(lower)),
            "",
            names,
            lower["x-amz-content-sha256"],
        ]
    )
    scope = f"{day}/{storage.region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
    key = f"AWS4{storage.secret_key.get_secret_value()}".encode()
    for part in (day, storage.region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    found["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={storage.access_key.get_secret_value()}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return found
