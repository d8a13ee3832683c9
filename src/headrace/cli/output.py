"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_KIBI = 1024


class LastingConsole(Console):
    """A console that falls silent when its reader is gone, where Rich's own would end the program.

    `headrace run ... | head` watches a run for a while; the run goes on.
    """

    def on_broken_pipe(self) -> None:
        """Print nothing from now on."""
        self.quiet = True
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stderr.fileno() if self.stderr else sys.stdout.fileno())
        os.close(null)


def console() -> Console:
    """A console on stdout; a pipe gets lines of any length instead of 80 columns."""
    out = LastingConsole(soft_wrap=False)
    return out if out.is_terminal else LastingConsole(width=10_000, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print data as JSON, and nothing else, on stdout."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()
) -> None:
    """Print rows under headings.

    Args:
        columns: The headings.
        rows: The cells; None is shown as a dash.
        right: Headings of the columns that are aligned to the right.
    """
    out = console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in set(right) else "left",
            overflow="fold",
            style="cyan" if column == columns[0] else None,
        )
    for row in rows:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    out.print(table)


def print_line(text: str, *, style: str = "") -> None:
    """Print one line of text, never read as markup."""
    console().print(Text(text, style=style))


def size_text(size: float) -> str:
    """A number of bytes for people: `1.2 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _KIBI:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIBI
    return f"{size:.1f} TiB"
