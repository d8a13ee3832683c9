"""`headrace tables`: which tables there are, one table's schema and history, advice on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from headrace.cli.options import EnvOption, JsonOption
from headrace.cli.output import print_json, print_line, print_table, size_text
from headrace.exceptions import DataError
from headrace.profiles.load import load_environment

if TYPE_CHECKING:
    from headrace.delta.history import Commit
    from headrace.delta.schema import DeltaType
    from headrace.delta.snapshot import Snapshot
    from headrace.profiles.models import Environment

app = typer.Typer(help="List tables, show and check one.", no_args_is_help=True)

# A table may lie this many folders below the lake (`staging/flights` is 2).
DEEPEST: Final = 4


def complete_table(incomplete: str) -> list[str]:
    """Names of the lake's tables."""
    from headrace.exceptions import HeadraceError

    try:
        environment = _environment(None)
        return [name for name in find_tables(environment) if name.startswith(incomplete)]
    except (HeadraceError, OSError):
        return []


TableArgument = Annotated[
    str,
    typer.Argument(
        help="Name in the lake, path, or address of a table.", autocompletion=complete_table
    ),
]
VersionOption = Annotated[
    int | None, typer.Option("--version", "-v", min=0, help="Version to look at; newest if none.")
]


@app.command("list")
def list_tables(*, env: EnvOption = None, json: JsonOption = False) -> None:
    """List the tables in the environment's lake."""
    environment = _environment(env)
    rows = [_overview(environment, name) for name in find_tables(environment)]
    if json:
        print_json(rows)
        return
    print_line(f"Lake {environment.lake}", style="dim")
    if not rows:
        print_line("No tables yet. A task makes one with write_table() or to_delta().")
        return
    print_table(
        ("table", "version", "rows", "files", "size", "written", "by run", "note"),
        (
            (
                row["name"],
                row["version"],
                _count(row["rows"]),
                row["files"],
                None if row["size_bytes"] is None else size_text(row["size_bytes"]),
                _moment(row["written"]),
                row["run"],
                row["problem"] or "",
            )
            for row in rows
        ),
        right=("version", "rows", "files", "size"),
    )


@app.command("show")
def show_table(
    table: TableArgument,
    *,
    version: VersionOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Commits to show.")] = 20,
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """Show a table's schema, size, and history: which run wrote which version from what."""
    from headrace.delta.history import load_history

    environment, snapshot = load_table(table, env, version)
    history = load_history(snapshot.uri, storage=environment.storage, limit=limit)
    if json:
        print_json({**_facts(table, snapshot), "history": [asdict(commit) for commit in history]})
        return
    _print_facts(table, snapshot)
    print_line("\nSchema", style="bold")
    print_table(
        ("column", "type", "null"),
        (
            (column.path, column.type, "yes" if column.nullable else "no")
            for column in list_columns(snapshot.schema)
        ),
    )
    print_line("\nHistory", style="bold")
    _print_history(history)


@app.command("check")
def check_table(
    table: TableArgument,
    *,
    version: VersionOption = None,
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """Check that a table can be read right, and say what could be better about it."""
    from headrace.cli.table_advice import advise, write_refusals, writer_duties

    _, snapshot = load_table(table, env, version)
    advice, duties = advise(snapshot), writer_duties(snapshot)
    refusals = write_refusals(snapshot)
    protocol = snapshot.protocol
    deleted = _deletion_vectors(snapshot)
    if json:
        print_json(
            {
                **_facts(table, snapshot),
                "reader_features": sorted(protocol.reader_features),
                "writer_features": sorted(protocol.writer_features),
                "files_with_deletion_vectors": deleted,
                "writers_honour": duties,
                "write_refusals": refusals,
                "advice": [found._asdict() for found in advice],
            }
        )
        return
    _print_facts(table, snapshot)
    print_line("\nReading", style="bold")
    readers = ", ".join(sorted(protocol.reader_features)) or "none"
    print_line(f"All of it can be read. Reader version {protocol.reader}, features: {readers}.")
    print_line(f"Files with deletion vectors: {deleted}.")
    print_line("Read by headrace itself: the log as Arrow columns, the files with pyarrow.")
    print_line("\nWriting", style="bold")
    writers = ", ".join(sorted(protocol.writer_features)) or "none"
    print_line(f"Writer version {protocol.writer}, features: {writers}.")
    for duty in duties:
        print_line(f"  a writer honours: {duty}")
    for mode, reason in refusals.items():
        print_line(f"  to_delta and write_arrow refuse mode={mode!r}: {reason}")
    if not refusals:
        print_line("  to_delta and write_arrow take it in every mode.")
    print_line("\nAdvice", style="bold")
    for found in advice:
        print_line(f"  {found.found}\n    Fix: {found.advice}")
    if not advice:
        print_line("  nothing to improve")


def find_tables(environment: Environment) -> Iterator[str]:
    """Names of the tables below the lake, sorted; nothing below a table is looked at."""
    from headrace.delta.location import filesystem_path, open_filesystem

    filesystem = open_filesystem(environment.lake, environment.storage)
    yield from _below(filesystem, filesystem_path(environment.lake).rstrip("/"), "", DEEPEST)


def _below(filesystem: Any, folder: str, name: str, depth: int) -> Iterator[str]:
    from pyarrow import fs

    infos = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    inner = sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)
    if "_delta_log" in inner and name:
        yield name
    elif depth:
        for child in inner:
            if not child.startswith((".", "_")):
                path = f"{name}/{child}" if name else child
                yield from _below(filesystem, f"{folder}/{child}", path, depth - 1)


class Column(NamedTuple):
    """A column, or a field within one.

    Attributes:
        path: Its name from the outside in: `address.street`.
        type: Its type's name.
        nullable: Whether the table admits nulls there.
    """

    path: str
    type: str
    nullable: bool


def list_columns(kind: DeltaType, path: str = "") -> Iterator[Column]:
    """The columns of a schema and, after each, the fields within it."""
    from headrace.delta.schema import Array, Map, Struct

    if isinstance(kind, Struct):
        for field in kind.fields:
            inner = f"{path}.{field.name}" if path else field.name
            yield Column(inner, type_text(field.type), field.nullable)
            yield from list_columns(field.type, inner)
    elif isinstance(kind, Array):
        yield from list_columns(kind.element, path)
    elif isinstance(kind, Map):
        yield from list_columns(kind.value, path)


def type_text(kind: DeltaType) -> str:
    """A type's name, as Spark writes it, with the fields of structs left to their own lines."""
    from headrace.delta.schema import Array, Map, Struct

    if isinstance(kind, Array):
        return f"array<{type_text(kind.element)}>"
    if isinstance(kind, Map):
        return f"map<{type_text(kind.key)}, {type_text(kind.value)}>"
    return "struct" if isinstance(kind, Struct) else kind.name


def _environment(env: str | None) -> Environment:
    """The environment, with storage credentials that are valid now."""
    environment = load_environment(env)
    return environment.model_copy(update={"storage": environment.storage.fresh()})


def load_table(table: str, env: str | None, version: int | None) -> tuple[Environment, Snapshot]:
    """A table that a user names, and the environment whose lake it is in."""
    from headrace.context import resolve_table
    from headrace.delta.snapshot import load_snapshot
    from headrace.exceptions import TableNotFoundError, UserError, closest, lines

    environment = _environment(env)
    uri = resolve_table(table, lake=environment.lake)
    try:
        return environment, load_snapshot(uri, version=version, storage=environment.storage)
    except TableNotFoundError as error:
        names = list(find_tables(environment))
        near = closest(table, names)
        if not names:
            raise
        found = f"Tables in the lake: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}."  # noqa: PLR2004
        fix = f"headrace tables show {near} (closest name)" if near else "headrace tables list"
        raise UserError(
            message=lines(f"there is no table {table!r} ({uri}).", found, fix)
        ) from error


def _overview(environment: Environment, name: str) -> dict[str, Any]:
    """One row of the list; a table that can't be read has a note instead of figures."""
    from headrace.context import resolve_table
    from headrace.delta.history import load_history
    from headrace.delta.snapshot import load_snapshot

    uri = resolve_table(name, lake=environment.lake)
    row: dict[str, Any] = dict.fromkeys(
        ("version", "rows", "files", "size_bytes", "written", "run", "problem")
    )
    row = {"name": name, "uri": uri, **row}
    try:
        snapshot = load_snapshot(uri, storage=environment.storage)
        row |= {
            "version": snapshot.version,
            "rows": snapshot.row_count,
            "files": snapshot.file_count,
            "size_bytes": snapshot.size_bytes,
        }
        for commit in load_history(uri, storage=environment.storage, limit=1):
            row |= {"written": commit.time, "run": commit.run}
    except DataError as error:
        row["problem"] = str(error).splitlines()[0]
    return row


def _facts(table: str, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "table": table,
        "uri": snapshot.uri,
        "version": snapshot.version,
        "rows": snapshot.row_count,
        "files": snapshot.file_count,
        "size_bytes": snapshot.size_bytes,
        "partition_columns": list(snapshot.partition_columns),
        "schema_hash": snapshot.ref().schema_hash,
        "schema": [column._asdict() for column in list_columns(snapshot.schema)],
    }


def _print_facts(table: str, snapshot: Snapshot) -> None:
    print_line(f"Table {table}, version {snapshot.version}", style="bold")
    rows = "unknown" if snapshot.row_count is None else f"{snapshot.row_count:,}"
    print_line(f"{snapshot.uri}", style="dim")
    print_line(f"{rows} rows in {snapshot.file_count} files, {size_text(snapshot.size_bytes)}")
    if snapshot.partition_columns:
        print_line(f"partitioned by {', '.join(snapshot.partition_columns)}")


def _print_history(history: list[Commit]) -> None:
    print_table(
        ("version", "time", "operation", "rows", "run", "task", "read"),
        (
            (
                commit.version,
                _moment(commit.time),
                f"{commit.operation} {commit.mode}".strip(),
                _count(commit.rows),
                commit.run,
                commit.task,
                ", ".join([*commit.inputs, *commit.models]),
            )
            for commit in history
        ),
        right=("version", "rows"),
    )


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _moment(time: str | None) -> str | None:
    """A time from the log as people read it, in this machine's zone."""
    return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S") if time else None


def _deletion_vectors(snapshot: Snapshot) -> int:
    return sum(value is not None for value in snapshot.files["dv"].to_pylist())
