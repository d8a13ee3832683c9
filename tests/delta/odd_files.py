"""Tables whose data files are unlike what Spark writes today, or whose log misstates them."""

from __future__ import annotations

# ruff: noqa: DTZ001 - times without a zone are what is tested
import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from tests.delta import bare_parquet as bare
from tests.delta.handmade import Log, array, mapped, mapping, struct
from tests.delta.log_layouts import ints

TABLES: dict[str, Callable] = {}


def table(make: Callable) -> Callable:
    TABLES[make.__name__] = make
    return make


# --- what the log says of a file -----------------------------------------------------------------


@table
def rows_that_the_log_miscounts(path):
    log = Log(path)
    counts = [5, 1, 0, -1, "2", 2.0]
    adds = [log.file(f"f{at}", ints(at, None), stats={"numRecords": n}) for at, n in enumerate(counts)]  # fmt: skip
    wrong = {"numRecords": 2, "minValues": {"a": 100}, "maxValues": {"a": 200}, "nullCount": {"a": 2}}  # fmt: skip
    adds += [log.file("g", ints(7, 8), stats=wrong)]
    odd = ("[1]", "5", "no json", "null")
    adds += [log.file(f"h{at}", ints(9), stats=text) for at, text in enumerate(odd)]
    log.begin(("a", "integer"), more=adds)


@table
def sizes_that_are_a_little_off(path):
    log = Log(path)
    adds = [log.file(f"f{more}", ints(more)) for more in (-10, 1000, 10**9)]
    for add, more in zip(adds, (-10, 1000, 10**9), strict=True):
        add["add"]["size"] += more
    log.begin(("a", "integer"), more=adds)


@table
def names_that_a_lister_would_hide(path):
    log = Log(path)
    names = ["_f.parquet", ".g.parquet", "data", "p=a%20b/h.parquet", "a[1]{2}?#.parquet", "a\\b.parquet"]  # fmt: skip
    codes = str.maketrans({c: f"%{ord(c):02x}" for c in "%[]{}?#\\"})
    adds = [log.file(n, ints(at), path=n.translate(codes)) for at, n in enumerate(names)]
    outside = log.file(f"{path}-beside/i.parquet", ints(9), path=f"../{log.path.name}-beside/i.parquet")  # fmt: skip
    log.begin(("a", "integer"), more=[*adds, outside])


@table
def partition_values_under_other_names(path):
    log = Log(path)
    data = {"c1": pa.array([1], pa.int32())}
    adds = [log.file(f"{name}.parquet", data, partition={name: name}) for name in ("p", "c2", "C2")]
    log.begin(
        ("a", "integer", mapped(1, "c1")), ("p", "string", mapped(2, "c2")), partitions=["p"],
        reader=2, writer=7, features=["columnMapping"], conf={"delta.columnMapping.mode": "name"}, more=adds,
    )  # fmt: skip


@table
def only_partition_columns(path):
    log = Log(path)
    add = log.file("f.parquet", ints(1, 2), partition={"p": "x"})
    log.begin(("p", "string"), partitions=["p"], more=[add])


# --- names ---------------------------------------------------------------------------------------

NAMES = ["a b", "a,b", "x;y", "{z}", "(q)", "n\nl", "t\tt", "e=q", "b`t", '"d"', "'s'", "%20", "a.b", "ünï", "\U0001f600", " lead", "_metadata", "*"]  # fmt: skip


@table
def names_with_every_character(path):
    """Delta forbids them without column mapping when it writes, and reads them."""
    log = Log(path)
    columns = {name: pa.array([at], pa.int32()) for at, name in enumerate(NAMES)}
    inner = pa.struct([("x.y", pa.int32()), (" z", pa.int32())])
    columns["s"] = pa.array([{"x.y": 1, " z": 2}], inner)
    fields = [*((name, "integer") for name in NAMES), ("s", struct(("x.y", "integer"), (" z", "integer")))]  # fmt: skip
    log.begin(*fields, more=[log.file("f.parquet", columns)])


@table
def ids_inside_a_map(path):
    def field(name, kind, number, **options):
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)}, **options)

    value = pa.struct([field("zz", pa.int32(), 5)])
    kind = pa.map_(field("key", pa.string(), 77, nullable=False), field("value", value, 78))
    data = pa.table(
        [pa.array([[("k", {"zz": 1})], None], kind)], schema=pa.schema([field("any", kind, 2)])
    )
    log = Log(path)
    inner = struct(("x", "integer", mapped(5, "p5")), ("y", "long", mapped(6, "p6")))
    log.begin(
        ("m", mapping("string", inner), mapped(2, "p2")), reader=3, writer=7,
        features=["columnMapping"], conf={"delta.columnMapping.mode": "id"}, more=[log.file("f.parquet", data)],
    )  # fmt: skip


@table
def a_type_of_the_user(path):
    log = Log(path)
    sql = struct(("type", "byte"), ("size", "integer"), ("indices", array("integer")), ("values", array("double")))  # fmt: skip
    kind = {"type": "udt", "class": "org.apache.spark.ml.linalg.VectorUDT", "pyClass": "pyspark.ml.linalg.VectorUDT", "sqlType": sql}  # fmt: skip
    arrow = pa.struct([("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))])  # fmt: skip
    dense = {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0]}
    sparse = {
        "type": 0,
        "size": 3,
        "indices": [1],
        "values": [4.0],
    }  # a null is beyond Spark's toArrow
    log.begin(("v", kind), more=[log.file("f.parquet", {"v": pa.array([dense, sparse], arrow)})])


# --- encodings and layouts -----------------------------------------------------------------------

ENCODINGS = {
    "delta": {
        "use_dictionary": False,
        "column_encoding": {
            "i": "DELTA_BINARY_PACKED", "l": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY",
            "bi": "DELTA_LENGTH_BYTE_ARRAY", "b": "RLE", "fx": "DELTA_BYTE_ARRAY",
        },
    },
    "pages": {"data_page_version": "2.0", "compression": "gzip", "write_page_checksum": True},
    "small": {"data_page_size": 64, "row_group_size": 50, "dictionary_pagesize_limit": 32, "compression": "lz4"},
    "bare": {"compression": "none", "write_statistics": False, "store_schema": False, "version": "1.0"},
    "old": {"use_compliant_nested_type": False, "compression": "zstd", "write_page_index": True},
    "cents": {"store_decimal_as_integer": True},
}  # fmt: skip


@table
def encodings_of_all_kinds(path):
    count = 200
    data = pa.table(
        {
            "i": pa.array([None if k % 7 == 0 else k * 3 for k in range(count)], pa.int32()),
            "l": pa.array(range(count), pa.int64()),
            "f": pa.array([k / 3 for k in range(count)], pa.float32()),
            "s": [f"prefix-{k // 3}" for k in range(count)],
            "b": [k % 3 == 0 for k in range(count)],
            "fx": pa.array([Decimal(k) / 4 for k in range(count)], pa.decimal128(15, 2)),
            "bi": [str(k).encode() for k in range(count)],
            "li": pa.array([[k, None] for k in range(count)], pa.list_(pa.int64())),
        }
    )
    log = Log(path)
    log.begin(
        ("i", "integer"), ("l", "long"), ("f", "float"), ("s", "string"), ("b", "boolean"),
        ("fx", "decimal(15,2)"), ("bi", "binary"), ("li", array("long")),
        more=[log.file(f"{name}.parquet", data, **options) for name, options in ENCODINGS.items()],
    )  # fmt: skip


@table
def decimals_in_more_bytes_than_they_need(path):
    def wide(name, size, precision):
        rows = tuple((0, 1, cents.to_bytes(size, "big", signed=True)) for cents in (125, -125))
        about = {"converted": bare.DECIMAL, "length": size, "precision": precision, "scale": 2}
        return bare.Node(name, type=bare.FIXED, rows=rows, **about)

    log = Log(path)
    long = bare.flat("long", bare.INT64, [125, -125], converted=bare.DECIMAL, precision=9, scale=2)
    bare.write(log.path / "f", 2, wide("nine", 16, 9), wide("eighteen", 9, 18), long)
    log.begin(
        ("nine", "decimal(9,2)"), ("eighteen", "decimal(18,2)"), ("long", "decimal(9,2)"),
        more=[log.add("f", (log.path / "f").stat().st_size)],
    )  # fmt: skip


@table
def required_at_every_level(path):
    def needed(name, kind):
        return pa.field(name, kind, nullable=False)

    pairs = pa.map_(pa.string(), needed("value", pa.int32()))
    schema = pa.schema(
        [
            needed("a", pa.int32()), needed("l", pa.list_(needed("element", pa.int32()))),
            needed("s", pa.struct([needed("x", pa.int32())])), needed("m", pairs),
        ]
    )  # fmt: skip
    rows = [[1, 2], [[1], []], [{"x": 1}, {"x": 2}], [[("k", 1)], []]]
    log = Log(path)
    log.begin(
        ("a", "integer"), ("l", array("integer")), ("s", struct(("x", "integer"), ("y", "string"))),
        ("m", mapping("string", "integer")), more=[log.file("f.parquet", pa.table(rows, schema=schema))],
    )  # fmt: skip


@table
def a_repeated_field_in_a_struct(path):
    log = Log(path)
    rows = ((0, 2, 1), (1, 2, 2), (0, 1, None), (0, 0, None))
    inner = bare.Node("r", bare.REPEATED, type=bare.INT32, rows=rows)
    bare.write(log.path / "f", 3, bare.group("s", inner))
    size = (log.path / "f").stat().st_size
    log.begin(("s", struct(("r", array("integer")))), more=[log.add("f", size)])


@table
def structs_without_any_of_their_fields(path):
    def column(values, kind):
        return pa.array(values, kind)

    other = pa.struct([("x", pa.int32()), ("w", pa.list_(pa.int32()))])
    one = {"x": 1, "w": [1]}
    data = {
        "s": column([one, None, {"x": None, "w": None}], other),
        "w": column([{"w": [1]}, None, {"w": []}], pa.struct([("w", pa.list_(pa.int32()))])),
        "l": column([[one, None], [], None], pa.list_(other)),
        "m": column([[("k", one), ("z", None)], [], None], pa.map_(pa.string(), other)),
        "n": column([{"z": one}, {"z": None}, None], pa.struct([("z", other)])),
    }
    log = Log(path)
    kind = struct(("y", "integer"), ("z", struct(("q", "string"))))
    log.begin(
        ("s", kind), ("w", kind), ("l", array(kind)), ("m", mapping("string", kind)),
        ("n", struct(("z", kind))), ("e", struct()), more=[log.file("f.parquet", data)],
    )  # fmt: skip


# --- types ---------------------------------------------------------------------------------------

NAIVE = dt.datetime(1600, 1, 1, 1, 2, 3, 4)


@table
def int96_inside_lists_and_maps_and_without_a_zone(path):
    kind = pa.timestamp("us")
    data = {
        "n": pa.array([NAIVE, None], kind),
        "l": pa.array([[NAIVE, None], None], pa.list_(kind)),
        "m": pa.array([[("k", NAIVE)], None], pa.map_(pa.string(), kind)),
    }
    log = Log(path)
    add = log.file("f.parquet", pa.table(data), use_deprecated_int96_timestamps=True)
    log.begin(
        ("n", "timestamp_ntz"), ("l", array("timestamp")), ("m", mapping("string", "timestamp")),
        reader=3, writer=7, features=["timestampNtz"], more=[add],
    )  # fmt: skip


# A file's type and the table's, for each pair that Delta widens and some that only a file may have.
WIDENED = {
    "byte_short": (pa.int8(), "short", [-7, None]),
    "byte_long": (pa.int8(), "long", [-7, None]),
    "byte_double": (pa.int8(), "double", [-7, None]),
    "byte_decimal": (pa.int8(), "decimal(12,2)", [-7, None]),
    "short_int": (pa.int16(), "integer", [-300, None]),
    "short_decimal": (pa.int16(), "decimal(10,0)", [-300, None]),
    "int_long": (pa.int32(), "long", [-70000, None]),
    "int_double": (pa.int32(), "double", [-70000, None]),
    "int_decimal": (pa.int32(), "decimal(20,5)", [-70000, None]),
    "long_decimal": (pa.int64(), "decimal(25,5)", [-5_000_000_000, None]),
    "float_double": (pa.float32(), "double", [1.1, float("nan"), None]),
    "date_ntz": (pa.date32(), "timestamp_ntz", [dt.date(1500, 2, 3), None]),
    "decimal_wider": (pa.decimal128(5, 2), "decimal(7,2)", [Decimal("-1.25"), None]),
    "decimal_scaled": (pa.decimal128(5, 2), "decimal(30,10)", [Decimal("-1.25"), None]),
    "decimal_long": (pa.decimal128(18, 2), "decimal(38,10)", [Decimal("1234567890123456.78"), None]),
}  # fmt: skip


@table
def every_pair_of_types_at_every_level(path):
    fields, columns = [], {}
    for name, (found, wanted, values) in WIDENED.items():
        value = values[0]
        fields += [
            (name, wanted), (f"l_{name}", array(wanted)), (f"s_{name}", struct(("x", wanted), ("y", "integer"))),
            (f"m_{name}", mapping(wanted, wanted)),
        ]  # fmt: skip
        columns |= {
            name: pa.array([value, None], found),
            f"l_{name}": pa.array([values, None], pa.list_(found)),
            f"s_{name}": pa.array([{"x": value}, None], pa.struct([("x", found)])),
            f"m_{name}": pa.array([[(value, value)], None], pa.map_(found, found)),
        }
    log = Log(path)
    log.begin(
        *fields, reader=3, writer=7, features=["typeWidening", "timestampNtz"],
        more=[log.file("f.parquet", columns)],
    )  # fmt: skip


@table
def columns_with_a_collation(path):
    """The log keeps `string`, and the collation beside it."""
    log = Log(path)
    data = {"a": ["A", "a"], "l": [["x"], None]}
    log.begin(
        ("a", "string", {"__COLLATIONS": {"a": "icu.UNICODE_CI"}}),
        ("l", array("string"), {"__COLLATIONS": {"l.element": "spark.UTF8_LCASE"}}),
        reader=1, writer=7, features=["collations-preview"], more=[log.file("f.parquet", data)],
    )  # fmt: skip


@table
def variants_in_either_order(path):
    empty, one = b"\x01\x00\x00", b"\x0c\x01"
    kinds = [("metadata", pa.binary()), ("value", pa.binary())]
    log = Log(path)
    rows = [{"metadata": empty, "value": one}, None]
    adds = [
        log.file(f"f{at}.parquet", {"v": pa.array(rows, pa.struct(order))})
        for at, order in enumerate((kinds, kinds[::-1]))
    ]
    log.begin(("v", "variant"), reader=3, writer=7, features=["variantType"], more=adds)
