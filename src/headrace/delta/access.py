"""What an S3 store says when it refuses or fails, as errors with a name and a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from headrace.exceptions import StorageAccessError
from headrace.profiles.storage import Storage

_T = TypeVar("_T")

# As pyarrow puts it: "AWS Error CODE during X operation: TEXT" and, for codes that it does not
# know, "AWS Error UNKNOWN (HTTP status N) during ...: Unable to parse ExceptionName: CODE".
_AWS = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during (\w+)")
_UNKNOWN_CODE = re.compile(r"ExceptionName: (\w+)")
_REFUSALS = frozenset(
    {
        "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID", "INVALID_SIGNATURE",
        "MISSING_AUTHENTICATION_TOKEN", "OPT_IN_REQUIRED", "REQUEST_EXPIRED",
        "SIGNATURE_DOES_NOT_MATCH", "UNRECOGNIZED_CLIENT", "ExpiredToken", "InvalidToken",
        "TokenRefreshRequired", "InvalidAccessKeyId", "AccessDenied", "RequestTimeTooSkewed",
    }
)  # fmt: skip
# A HEAD request has no body that could say more.
_REFUSED_STATUS = frozenset({"400", "401", "403"})


def is_refusal(error: BaseException) -> bool:
    """Whether a store refused the credentials, as far as an error of the file system tells."""
    if isinstance(error, RefusedError):
        return True
    found = _AWS.search(str(error))
    if found is None:
        return False
    code = _UNKNOWN_CODE.search(str(error))
    if code is not None:
        return code[1] in _REFUSALS
    return found[1] in _REFUSALS or found[2] in _REFUSED_STATUS


def is_from_store(error: BaseException) -> bool:
    """Whether an error is what an S3 store answered, or that it did not answer."""
    return isinstance(error, RefusedError) or _AWS.search(str(error)) is not None


class RefusedError(OSError):
    """A store refused a request that was signed here; `code` is what it said."""

    def __init__(self, code: str, operation: str) -> None:
        super().__init__(f"{code} during {operation}")


@contextmanager
def naming_store_errors(uri: str) -> Iterator[None]:
    """Raise what a store answers as `StorageAccessError`, which names the address and a remedy.

    Args:
        uri: What was read or written.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except RefusedError as error:
        raise StorageAccessError(uri=uri, reason=str(error), refused=True) from error
    except OSError as error:
        found = _AWS.search(str(error))
        if found is None:
            raise
        code = _UNKNOWN_CODE.search(str(error))
        said = code[1] if code else found[1] if found[2] is None else f"HTTP status {found[2]}"
        raise StorageAccessError(
            uri=uri, reason=f"{said} during {found[3]}", refused=is_refusal(error)
        ) from error


def with_good_credentials(storage: Storage, work: Callable[[Storage], _T]) -> _T:
    """Do something with a storage, once more with new credentials where the store refuses them."""
    used = storage.fresh()
    try:
        return work(used)
    except OSError as error:
        if not (storage.refresh_command and is_refusal(error)):
            raise
        return work(storage.renewed(used))
