"""Secrets by reference: a profile file says where a secret is, never what it is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr, model_validator

from headrace.exceptions import SecretError

_PASSWORD = re.compile(r"(?P<start>[\w+.-]+://[^/@:]*:)[^/@]+(?P<end>@)")


class SecretRef(BaseModel):
    """Where a secret is: `{ env = "NAME" }` or `{ file = "path" }`.

    Attributes:
        env: Environment variable that holds it.
        file: File that holds it; a relative path starts at the project's root.
        key: For a file of `NAME=value` lines (such as `infra/.env`): the name to take.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: str | None = None
    file: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> SecretRef:
        if (self.env is None) == (self.file is None):
            raise ValueError('a secret is { env = "NAME" } or { file = "path" }, one of the two')
        if self.key and self.file is None:
            raise ValueError("key only goes with file")
        return self

    def __str__(self) -> str:
        if self.env is not None:
            return f"environment variable {self.env}"
        return f"{self.key} in file {self.file}" if self.key else f"file {self.file}"


def resolve_secret(ref: SecretRef, *, root: Path, wanted_by: str) -> SecretStr:
    """Fetch the secret that `ref` points to.

    Args:
        ref: The reference.
        root: The project's root, for relative paths.
        wanted_by: The key that asks, for the error text.

    Raises:
        SecretError: The variable isn't set, the file can't be read, or it is empty.
    """
    if ref.env is not None:
        value = os.environ.get(ref.env, "")
        if not value:
            raise SecretError(key=wanted_by, place=str(ref), reason="it is not set")
        return SecretStr(value)
    path = root / Path(ref.file or "").expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise SecretError(key=wanted_by, place=f"file {path}", reason=reason) from error
    value = _named_line(text, ref.key) if ref.key else text.strip()
    if not value:
        raise SecretError(key=wanted_by, place=str(ref), reason="it is empty or missing")
    return SecretStr(value)


def has_password(text: str) -> bool:
    """Whether an address holds a password, as in `postgresql://user:secret@host/db`."""
    return _PASSWORD.search(text) is not None


def mask_password(text: str) -> str:
    """Hide the password in an address: `postgresql://user:***@host/db`."""
    return _PASSWORD.sub(r"\g<start>***\g<end>", text)


def _named_line(text: str, key: str) -> str:
    for line in text.splitlines():
        name, found, value = line.strip().removeprefix("export ").partition("=")
        if found and name.strip() == key:
            return value.strip().strip("'\"")
    return ""
