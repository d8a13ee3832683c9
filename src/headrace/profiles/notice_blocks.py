"""Names of the Prefect blocks that people are told through, for mail with addresses."""

from __future__ import annotations

import re
from typing import Final

MAIL: Final = "email-server-credentials"
"""The block type of a mail server, from the package prefect-email."""

_NAME: Final = re.compile(r"(?P<block>(?P<type>[^/?\s]+)/[^/?\s]+)(\?to=(?P<to>[^?\s]+))?")
_ADDRESS: Final = re.compile(r"[^@,\s]+@[^@,\s]+")


def split_name(name: str) -> tuple[str, list[str]]:
    """A block's own name, and the mail addresses behind it.

    Args:
        name: `type/name`, or `email-server-credentials/name?to=ADDRESS,ADDRESS`.

    Raises:
        ValueError: It is neither; the text says why.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no type/name of a Prefect block")
    addresses = found["to"].split(",") if found["to"] else []
    if (found["type"] == MAIL) != bool(addresses):
        wants = "needs ?to=ADDRESS behind it" if found["type"] == MAIL else "takes no ?to="
        raise ValueError(f"{found['block']} {wants}")
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise ValueError(f"{address!r} is no mail address")
    return found["block"], addresses


def check_name(name: str) -> str:
    """The name itself, when it is one; see `split_name`."""
    split_name(name)
    return name
