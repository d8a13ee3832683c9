"""New columns of a table with column mapping: their names in files, and their ids."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from headrace.delta.schema import (
    MAPPING_ID,
    MAPPING_NAME,
    Array,
    DeltaType,
    Field,
    Map,
    Struct,
    walk_fields,
)

MAX_ID: Final = "delta.columnMapping.maxColumnId"


def with_physical_names(schema: Struct, seed: str) -> Struct:
    """The schema with a name in files for every field that has none yet.

    Never the user's own name: files may still hold a dropped column that was called so.

    Args:
        schema: The table's columns and new ones.
        seed: Identity of the write; all of its workers come to the same names.
    """
    return Struct(tuple(_named(child, f"{seed}/") for child in schema.fields))


def _named(child: Field, path: str) -> Field:
    path += child.name
    about = dict(child.metadata)
    about.setdefault(MAPPING_NAME, f"col-{uuid.uuid5(uuid.NAMESPACE_URL, path)}")
    return replace(child, type=_named_inside(child.type, f"{path}/"), metadata=about)


def _named_inside(kind: DeltaType, path: str) -> DeltaType:
    match kind:
        case Struct(fields):
            return Struct(tuple(_named(child, path) for child in fields))
        case Array(element):
            return replace(kind, element=_named_inside(element, f"{path}element/"))
        case Map(key, value):
            return replace(
                kind,
                key=_named_inside(key, f"{path}key/"),
                value=_named_inside(value, f"{path}value/"),
            )
        case _:
            return kind


def with_ids(schema: Struct, used: int) -> tuple[Struct, int]:
    """The schema with an id for every field that has none, and the largest id.

    Args:
        schema: The table's columns and new ones.
        used: The largest id that the table has given out, also to columns that are gone.
    """
    known = [child.field_id or 0 for child in walk_fields(schema)]
    numbers = iter(range(max([used, *known]) + 1, 1 << 31))
    numbered = Struct(tuple(_numbered(child, numbers) for child in schema.fields))
    return numbered, max([used, *(child.field_id or 0 for child in walk_fields(numbered))])


def _numbered(child: Field, numbers: Iterator[int]) -> Field:
    about = dict(child.metadata)
    if MAPPING_ID not in about:
        about[MAPPING_ID] = next(numbers)
    return replace(child, type=_numbered_inside(child.type, numbers), metadata=about)


def _numbered_inside(kind: DeltaType, numbers: Iterator[int]) -> DeltaType:
    match kind:
        case Struct(fields):
            return Struct(tuple(_numbered(child, numbers) for child in fields))
        case Array(element):
            return replace(kind, element=_numbered_inside(element, numbers))
        case Map(key, value):
            return replace(
                kind, key=_numbered_inside(key, numbers), value=_numbered_inside(value, numbers)
            )
        case _:
            return kind
