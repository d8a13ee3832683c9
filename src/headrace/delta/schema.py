"""A Delta schema as a small tree, with the names that columns have inside the files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MAPPING_ID = "delta.columnMapping.id"
MAPPING_NAME = "delta.columnMapping.physicalName"
CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"


@dataclass(frozen=True)
class Primitive:
    """A type without children, under its Delta name (`long`, `decimal(10,2)`, ...)."""

    name: str


@dataclass(frozen=True)
class Array:
    """A list type."""

    element: DeltaType
    contains_null: bool = True


@dataclass(frozen=True)
class Map:
    """A map type."""

    key: DeltaType
    value: DeltaType
    value_contains_null: bool = True


@dataclass(frozen=True)
class Field:
    """One column, or one field of a struct.

    Attributes:
        name: The name that users see.
        type: Its type.
        nullable: Whether the table admits nulls.
        metadata: Field metadata of the Delta schema, as JSON values.
    """

    name: str
    type: DeltaType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def physical_name(self) -> str:
        """The name inside data files, statistics and partition values."""
        return str(self.metadata.get(MAPPING_NAME, self.name))

    @property
    def field_id(self) -> int | None:
        """The Parquet field id under column mapping, or None."""
        value = self.metadata.get(MAPPING_ID)
        return None if value is None else int(value)


@dataclass(frozen=True)
class Struct:
    """A struct type; a table's schema is one."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> list[str]:
        """The fields' names, in order."""
        return [child.name for child in self.fields]

    def find(self, name: str) -> Field | None:
        """The field of that name; upper and lower case are the same, as in Spark."""
        exact = [child for child in self.fields if child.name == name]
        near = exact or [child for child in self.fields if child.name.lower() == name.lower()]
        return near[0] if near else None


DeltaType = Primitive | Array | Map | Struct


def parse_schema(schema_string: str) -> Struct:
    """Parse the `schemaString` of a `metaData` action."""
    parsed = _parse_type(json.loads(schema_string))
    if not isinstance(parsed, Struct):
        raise TypeError("the schema of a table is a struct")
    return parsed


def schema_hash(schema_string: str) -> str:
    """SHA-256 (hex) of a schema as canonical JSON: key order and spaces don't matter."""
    canonical = json.dumps(json.loads(schema_string), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def walk_fields(kind: DeltaType) -> Iterator[Field]:
    """Every field of every struct in the type, parents first."""
    match kind:
        case Struct(fields):
            for child in fields:
                yield child
                yield from walk_fields(child.type)
        case Array(element):
            yield from walk_fields(element)
        case Map(key, value):
            yield from walk_fields(key)
            yield from walk_fields(value)
        case _:
            return


def walk_types(kind: DeltaType) -> Iterator[DeltaType]:
    """The type and every type inside it, parents first."""
    yield kind
    match kind:
        case Struct(fields):
            for child in fields:
                yield from walk_types(child.type)
        case Array(element):
            yield from walk_types(element)
        case Map(key, value):
            yield from walk_types(key)
            yield from walk_types(value)
        case _:
            return


def with_char_types(child: Field) -> DeltaType:
    """The field's type with CHAR(n) where the table declares it.

    Delta writes such columns as `string` and keeps the declaration, for the whole column, in the
    field's metadata.
    """
    return _declare(child.type, _declaration(child), ("char(",))


def with_text_types(child: Field) -> DeltaType:
    """The field's type with CHAR(n) and VARCHAR(n) where the table declares them."""
    return _declare(child.type, _declaration(child), ("char(", "varchar("))


def text_type_at(fields: Sequence[Field]) -> str:
    """What a text column is declared as (`char(3)`), given the fields on the way to it, or ''."""
    kind = with_text_types(fields[0])
    for child in fields[1:]:
        found = kind.find(child.name) if isinstance(kind, Struct) else None
        if found is None:
            return ""
        kind = found.type
    return kind.name if isinstance(kind, Primitive) and "char(" in kind.name else ""


def _declaration(child: Field) -> str:
    return str(child.metadata.get(CHAR_TYPE, ""))


def _declare(kind: DeltaType, declared: str, names: tuple[str, ...]) -> DeltaType:
    """Put text types of a type in Spark's notation into the same type's tree."""
    if "char(" not in declared:
        return kind
    inside = _split_type(declared)
    match kind:
        case Primitive("string") if declared.startswith(names):
            return Primitive(declared)
        case Array(element, nulls) if len(inside) == 1:
            return Array(_declare(element, inside[0], names), nulls)
        case Map(key, value, nulls) if len(inside) == 2:  # noqa: PLR2004
            return Map(_declare(key, inside[0], names), _declare(value, inside[1], names), nulls)
        case Struct(fields) if len(inside) == len(fields):
            texts = [
                text.removeprefix(child.name).removeprefix(f"`{child.name}`").lstrip(": ")
                for text, child in zip(inside, fields, strict=True)
            ]
            return Struct(
                tuple(
                    replace(child, type=_declare(child.type, text, names))
                    for child, text in zip(fields, texts, strict=True)
                )
            )
        case _:
            return kind


def _split_type(declared: str) -> list[str]:
    """What is between the outermost `<` and `>`, split at the commas that aren't inside."""
    _, found, body = declared.partition("<")
    parts, depth = [""], 0
    for character in body.removesuffix(">") if found else "":
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def without_mapping(kind: DeltaType) -> DeltaType:
    """The type with column-mapping names and ids removed from every field.

    A table that doesn't use column mapping may still carry the metadata (a mapping that was
    dropped again); its files have the users' names.
    """
    match kind:
        case Struct(fields):
            return Struct(tuple(_unmapped(child) for child in fields))
        case Array(element, nulls):
            return Array(without_mapping(element), nulls)
        case Map(key, value, nulls):
            return Map(without_mapping(key), without_mapping(value), nulls)
        case _:
            return kind


def _unmapped(child: Field) -> Field:
    kept = {key: value for key, value in child.metadata.items() if key not in _MAPPING_KEYS}
    return replace(child, type=without_mapping(child.type), metadata=kept)


_MAPPING_KEYS = (MAPPING_ID, MAPPING_NAME)


def _type_name(text: str) -> str:
    """A type's name in one spelling; Spark takes `decimal( 10, 2 )` and `timestamp_ltz`, too.

    A collation says how texts compare, not what they are.
    """
    if text.startswith("string collate "):
        return "string"
    bare = re.sub(r"\s+", "", text) if text.endswith(")") else text
    return "timestamp" if bare == "timestamp_ltz" else bare


def _parse_type(value: Any) -> DeltaType:
    if isinstance(value, str):
        return Primitive(_type_name(value))
    kind = value["type"]
    if kind == "struct":
        return Struct(tuple(_parse_field(child) for child in value["fields"]))
    if kind == "array":
        return Array(_parse_type(value["elementType"]), bool(value.get("containsNull", True)))
    if kind == "map":
        return Map(
            _parse_type(value["keyType"]),
            _parse_type(value["valueType"]),
            bool(value.get("valueContainsNull", True)),
        )
    if kind == "udt":
        return _parse_type(value["sqlType"])
    return _parse_type(kind)


def _parse_field(value: Mapping[str, Any]) -> Field:
    return Field(
        name=str(value["name"]),
        type=_parse_type(value["type"]),
        nullable=bool(value.get("nullable", True)),
        metadata=value.get("metadata") or {},
    )
