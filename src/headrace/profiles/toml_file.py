"""Read a TOML file and remember the line of each key, which `tomllib` forgets."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.exceptions import ProfileError

Key = tuple[str, ...]

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[A-Za-z0-9_-]+"
    r"|.",
    re.DOTALL,
)
_PLACE = re.compile(r"(?P<reason>.*?) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end.*)\)")


@dataclass(frozen=True)
class TomlFile:
    """A TOML file's values and the line of each key.

    Attributes:
        name: The path as the user would write it.
        data: The values, as `tomllib` gives them.
        lines: Line by key path; a header counts as the key of its table.
    """

    name: str
    data: dict[str, Any]
    lines: dict[Key, int]

    def line(self, key: Key) -> int | None:
        """The line of a key, or of the nearest table around it."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.lines:
                return self.lines[key[:length]]
        return None


def read_toml(path: Path, name: str) -> TomlFile:
    """Read a TOML file.

    Args:
        path: The file.
        name: How error texts call it.

    Raises:
        ProfileError: It can't be read, is no UTF-8, or isn't TOML; line and column are named.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(name, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _unreadable(name, f"byte {error.start} is no UTF-8") from error
    text = text.replace("\r\n", "\n")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(name, text, str(error)) from error
    return TomlFile(name=name, data=data, lines=index_lines(text))


def index_lines(text: str) -> dict[Key, int]:
    r"""The line of each key and table header in a valid TOML text.

    Keys inside an inline table count as part of the line on which that table starts.

    Example:
        >>> index_lines('[a]\nb.c = 1\n')
        {('a',): 1, ('a', 'b'): 2, ('a', 'b', 'c'): 2}
    """
    found: dict[Key, int] = {}
    table: Key = ()
    for line, statement in _statements(text):
        is_header = statement[0] == "["
        parts = _key(statement)
        if is_header:
            table = parts
        path = parts if is_header else table + parts
        shortest = 1 if is_header else len(table) + 1
        for length in range(shortest, len(path) + 1):
            found.setdefault(path[:length], line)
        if is_header:
            found[path] = line
    return found


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each statement's first line and its tokens, without white space and comments."""
    line, start, depth = 1, 1, 0
    statement: list[str] = []
    for match in _TOKEN.finditer(text):
        piece = match.group()
        if piece == "\n" and depth == 0:
            if statement:
                yield start, statement
            statement = []
        elif not piece.isspace() and not piece.startswith("#"):
            if not statement:
                start = line
            statement.append(piece)
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(piece, 0)
        line += piece.count("\n")
    if statement:
        yield start, statement


def _key(statement: list[str]) -> Key:
    """The dotted key that a statement starts with."""
    parts = []
    for piece in statement:
        if piece in {"=", "]"}:
            break
        if piece not in {".", "["}:
            parts.append(next(iter(tomllib.loads(f"{piece} = 0"))))
    return tuple(parts)


def _unreadable(name: str, reason: str) -> ProfileError:
    return ProfileError(
        origin=name,
        key="",
        problem=f"the file can't be read: {reason}",
        found="",
        fix="it has to be a UTF-8 text file that you may read",
    )


def _syntax_error(name: str, text: str, message: str) -> ProfileError:
    rows = text.splitlines() or [""]
    match = _PLACE.fullmatch(message)
    reason = match["reason"] if match else message
    line = int(match["line"]) if match and match["line"] else len(rows)
    row = rows[min(line, len(rows)) - 1]
    column = int(match["column"]) if match and match["column"] else len(row) + 1
    return ProfileError(
        origin=f"{name}:{line}:{column}",
        key="",
        problem=f"this is not TOML: {reason[:1].lower()}{reason[1:]}",
        found=f"    {row}\n    {' ' * (column - 1)}^",
        fix='write key = "text", key = 1 or [table.name]; see https://toml.io',
    )
