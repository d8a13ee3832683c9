"""What Prefect's page shows of a task: its tables and what it attached."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.engines.spec import AttemptResult

log = logging.getLogger("headrace.run")


def show_tables(name: str, result: AttemptResult) -> None:
    """Show which table versions a task read and wrote."""
    used = [("read", read) for read in result.reads] + [("wrote", w) for w in result.writes]
    if not used:
        return
    rows = [
        {
            "": verb,
            "table": use.ref.name or use.ref.uri,
            "version": use.ref.version,
            "rows": use.ref.row_count,
            "files": use.ref.file_count,
            "mode": use.mode,
            "where": use.ref.uri,
        }
        for verb, use in used
    ]
    from prefect.artifacts import create_table_artifact

    _create(create_table_artifact, key=f"{name}-tables", table=rows, description=f"## {name}")


def show_attachments(name: str, result: AttemptResult) -> None:
    """Show the texts that a task attached, with a link to the file."""
    from prefect.artifacts import create_markdown_artifact

    for attachment in result.attachments:
        text = f"# {attachment.title}\n\n{attachment.markdown}".rstrip()
        if attachment.path:
            text += f"\n\n[Open {Path(attachment.path).name}]({Path(attachment.path).as_uri()})"
        _create(create_markdown_artifact, key=f"{name}-{attachment.title}", markdown=text)


def _create(create: Any, *, key: str, **values: Any) -> None:
    try:
        create(key=artifact_key(key), **values)
    except Exception as error:  # noqa: BLE001 - a page that misses a table is no reason to fail
        log.warning("Prefect did not take the artifact %s: %s", key, error)


def artifact_key(text: str) -> str:
    """A key that Prefect takes: lower-case letters, digits and single dashes.

    Example:
        >>> artifact_key("build_features[2013-01]-tables")
        'build-features-2013-01-tables'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
