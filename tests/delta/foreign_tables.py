"""Tables with files that other writers, or older ones, make."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from tests.delta import bare_parquet as bare
from tests.delta.bare_parquet import flat, group, leaf
from tests.delta.handmade import Log, array, mapping, struct

TABLES: dict[str, Callable] = {}


def table(make: Callable) -> Callable:
    TABLES[make.__name__] = make
    return make


# --- layouts of lists and maps -------------------------------------------------------------------

# Rows of a list: 1 and 2; null; empty; 3.
TWO_LEVELS = [(0, 2, 1), (1, 2, 2), (0, 0, None), (0, 1, None), (0, 2, 3)]
# The same of structs, the second without a value.
TWO_LEVELS_OF_STRUCTS = [(0, 3, 1), (1, 2, None), (0, 0, None), (0, 1, None), (0, 3, 3)]
# The same with a null in it.
THREE_LEVELS = [(0, 3, 1), (1, 2, None), (0, 0, None), (0, 1, None), (0, 3, 3)]
# Rows of a map: k and l, without a value; null; empty; k.
KEYS = [(0, 2, "k"), (1, 2, "l"), (0, 0, None), (0, 1, None), (0, 2, "k")]
VALUES = [(0, 3, 1), (1, 2, None), (0, 0, None), (0, 1, None), (0, 3, 3)]


def a_list(name: str, *inner: bare.Node, repeated: str) -> bare.Node:
    return group(name, group(repeated, *inner, repetition=bare.REPEATED), converted=bare.LIST)


def repeated_leaf(name: str, rows):
    return bare.Node(name, bare.REPEATED, type=bare.INT32, rows=tuple(rows))


def a_map(name: str, outer: int, inner: int | None, middle: str, key: str, value: str):
    pair = group(
        middle,
        bare.Node(key, bare.REQUIRED, type=bare.BYTES, converted=bare.UTF8, rows=tuple(KEYS)),
        leaf(value, bare.INT32, VALUES),
        repetition=bare.REPEATED,
        converted=inner,
    )
    return group(name, pair, converted=outer)


@table
def lists_of_older_writers(path):
    log = Log(path)
    columns = [
        group("avro", repeated_leaf("array", TWO_LEVELS), converted=bare.LIST),
        group("thrift", repeated_leaf("thrift_tuple", TWO_LEVELS), converted=bare.LIST),
        repeated_leaf("proto", [(0, 1, 1), (1, 1, 2), (0, 0, None), (0, 0, None), (0, 1, 3)]),
        group(
            "proto_structs",
            leaf("x", bare.INT32, [(0, 2, 1), (1, 1, None), (0, 0, None), (0, 0, None), (0, 2, 3)]),
            repetition=bare.REPEATED,
        ),
        a_list("avro_structs", leaf("x", bare.INT32, TWO_LEVELS_OF_STRUCTS), repeated="array"),
        a_list(
            "thrift_structs",
            leaf("x", bare.INT32, TWO_LEVELS_OF_STRUCTS),
            repeated="thrift_structs_tuple",
        ),
        a_list(
            "two_fields",
            leaf("x", bare.INT32, TWO_LEVELS_OF_STRUCTS),
            leaf("y", bare.INT32, TWO_LEVELS_OF_STRUCTS),
            repeated="pair",
        ),
        a_list("hive", leaf("array_element", bare.INT32, THREE_LEVELS), repeated="bag"),
        a_list("spelled", leaf("item", bare.INT32, THREE_LEVELS), repeated="list"),
    ]
    bare.write(log.path / "f.parquet", 4, *columns)
    numbers, structs = array("integer"), array(struct(("x", "integer")))
    log.begin(
        ("avro", numbers), ("thrift", numbers), ("proto", numbers), ("proto_structs", structs),
        ("avro_structs", structs), ("thrift_structs", structs),
        ("two_fields", array(struct(("x", "integer"), ("y", "integer")))), ("hive", numbers), ("spelled", numbers),
        more=[log.add("f.parquet", (log.path / "f.parquet").stat().st_size)],
    )  # fmt: skip


@table
def a_list_whose_struct_looks_like_a_level(path):
    log = Log(path)
    column = a_list("a", leaf("x", bare.INT32, TWO_LEVELS_OF_STRUCTS), repeated="other")
    bare.write(log.path / "f.parquet", 4, column)
    log.begin(
        ("a", array(struct(("x", "integer")))),
        more=[log.add("f.parquet", (log.path / "f.parquet").stat().st_size)],
    )


@table
def maps_of_older_writers(path):
    log = Log(path)
    columns = [
        a_map("plain", bare.MAP, None, "key_value", "key", "value"),
        a_map("old", bare.MAP, bare.MAP_KEY_VALUE, "map", "key", "value"),
        a_map("older", bare.MAP_KEY_VALUE, None, "map", "key", "value"),
        a_map("renamed", bare.MAP, None, "entries", "k", "v"),
    ]
    bare.write(log.path / "f.parquet", 4, *columns)
    kind = mapping("string", "integer")
    log.begin(
        *((column.name, kind) for column in columns),
        more=[log.add("f.parquet", (log.path / "f.parquet").stat().st_size)],
    )


@table
def annotations_of_all_kinds(path):
    log = Log(path)
    texts = ["x", None, "y"]
    columns = [
        flat("enum", bare.BYTES, texts, converted=bare.ENUM),
        flat("json", bare.BYTES, texts, converted=bare.JSON),
        flat("bson", bare.BYTES, texts, converted=bare.BSON),
        flat("bare", bare.BYTES, texts),
        flat("text", bare.BYTES, texts, converted=bare.UTF8),
        flat(
            "decimal", bare.BYTES, [b"\x7b", None, b"\xff\x85"],
            converted=bare.DECIMAL, precision=20, scale=2,
        ),
        flat("cents", bare.INT32, [123, None, -5], converted=bare.DECIMAL, precision=5, scale=2),
        flat("long_cents", bare.INT64, [2**40, None, -5], converted=bare.DECIMAL, precision=15, scale=2),
        bare.Node("needed", bare.REQUIRED, type=bare.INT64, rows=tuple((0, 0, n) for n in (1, 2, 3))),
    ]  # fmt: skip
    bare.write(log.path / "f.parquet", 3, *columns)
    log.begin(
        ("enum", "string"), ("json", "string"), ("bson", "binary"), ("bare", "string"), ("text", "binary"),
        ("decimal", "decimal(20,2)"), ("cents", "decimal(5,2)"), ("long_cents", "decimal(15,2)"), ("needed", "long"),
        more=[log.add("f.parquet", (log.path / "f.parquet").stat().st_size)],
    )  # fmt: skip


@table
def decimals_for_a_binary_column(path):
    log = Log(path)
    data = {"a": pa.array([Decimal("1.25"), None, Decimal("-1.25")], pa.decimal128(20, 2))}
    log.begin(("a", "binary"), more=[log.file("f.parquet", data)])
