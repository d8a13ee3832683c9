"""Tables whose log and files are written by hand, one function each."""

from __future__ import annotations

# ruff: noqa: DTZ001 - times without a zone are what is tested
import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

from tests.delta.handmade import Log, array, mapped, mapping, struct

TABLES: dict[str, Callable] = {}


def table(make: Callable) -> Callable:
    TABLES[make.__name__] = make
    return make


def ints(*values):
    return {"a": pa.array(values, pa.int32())}


PARTITION_TEXTS = {
    "integer": ["12", " 12 ", "+7", "1.7", "-1.9", "abc", "", None, "__HIVE_DEFAULT_PARTITION__", "99999999999", "1e3", ".", ".5", "0x1", "\uff11", "\u00a01", "1.", "0000000000000000000012", "-.5", "1_000", "1\u0000"],
    "long": ["9223372036854775807", "9223372036854775808", "-9223372036854775808"],
    "byte": ["127", "128", "-128"],
    "short": ["32767", "32768"],
    "double": ["1.5", "NaN", "nan", "Infinity", "-Infinity", "inf", "-inf", "1e400", "1d", "1f", "1_0", "", "x", " 2 ", "+Infinity", "0x1p3", "\u0661", "\u00a01", "Infinityd", "NaNf", "-NaN", "2.4703282292062328e-324", "1.7976931348623159e308", "9007199254740993", "0x1.fffffffffffff8p1023"],
    "float": ["1.1", "3.4028236e39", "1e-50", "NaN"],
    "boolean": ["true", "TRUE", "t", "yes", "y", "1", "false", "f", "no", "n", "0", "", "2", " true ", "T", "on", "\u00a0true"],
    "string": ["x", "", None, " ", "__HIVE_DEFAULT_PARTITION__", "ü/%2F", "a\u0000b", "\r\n", "null", "%00", "\U0001f600"],
    "binary": ["abc", "", None, "ü"],
    "date": ["2020-01-02", "2020-1-2", "2020", "2020-02", "2020-01-02T10:00:00", "2020-01-02 x", "10000-01-01", "0001-01-01", "2020-13-01", "2020-02-30", "", "abc", " 2020-01-02 ", "-0044-03-15", "epoch", "20200102", "5881580-07-11", "5881580-07-12", "\uff12\uff10\uff12\uff10-01-02", "2020-1-2T", "+2020-01-02", "2020-", "02020-01-02", "0000-01-01", "-5877641-06-23"],
    "timestamp": ["2020-01-02 03:04:05", "2020-01-02 03:04:05.123456", "2020-01-02T03:04:05Z", "2020-01-02T03:04:05.123456Z", "2020-01-02T03:04:05+01:30", "2020-01-02 03:04:05.1", "2020-01-02", "2020-01-02 03:04", "2020-01-02T03", "2020-01-02 03:04:05 Europe/Paris", "2020-01-02 03:04:05.1234567", "1500-01-01 00:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "", "x", "2020-01-02 25:00:00", "2020", "2020-01-02 3:4:5", "2020-01-02 03:04:05 UTC", "2020-01-02 03:04:05-0800", "12:34:56x", "2020-01-02 03:04:05.", "2020-01-02 03:04:05GMT+1", "294248-01-01 00:00:00", "2020-01-02 03:04:05 PST", "2020-01-02 03:04:05+18:00", "2020-01-02 03:04:05+19:00", "2020-01-02 03:04:05+01:5", "2020-01-02 03:04:05 EST"],
    "timestamp_ntz": ["2020-01-02 03:04:05", "2020-01-02T03:04:05.123456", "2020-01-02", "2020-01-02T03:04:05Z", "1500-01-01 00:00:00", "x", "2020-01-02 03:04:05 PST", "2020-01-02 03:04:05+25:00"],
    "decimal(10,2)": ["1.5", "1.235", "1.245", "-1.235", "123456789.99", "99999999.994", "99999999.995", "1e2", "", "x", " 3 ", "NaN", "0.001", "1E-3"],
}  # fmt: skip


def partition_texts(kind):
    def make(path):
        log = Log(path)
        adds = [
            log.file(f"f{index}.parquet", ints(index), partition={"p": text})
            for index, text in enumerate(PARTITION_TEXTS[kind])
        ]
        missing = log.file("missing.parquet", ints(1000))
        features = ["timestampNtz"] if kind == "timestamp_ntz" else None
        log.begin(
            ("a", "integer"), ("p", kind), partitions=["p"], more=[*adds, missing], features=features,
            reader=3 if features else 1, writer=7 if features else 2,
        )  # fmt: skip

    return make


for _kind in PARTITION_TEXTS:
    TABLES[f"partition_texts_{_kind.partition('(')[0]}"] = partition_texts(_kind)


@table
def int96(path):
    log = Log(path)
    naive = [dt.datetime(1, 1, 1), dt.datetime(1500, 2, 28, 1), dt.datetime(1677, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 0, 7),
             dt.datetime(2262, 4, 12), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None]  # fmt: skip
    # INT96 is days and nanoseconds; pyarrow reaches beyond 1677 only from microseconds.
    data = pa.table({"t": pa.array(naive, pa.timestamp("us")), "a": pa.array(range(7), pa.int32())})
    nested = data.append_column(
        "s", pa.array([{"u": value} for value in naive], pa.struct([("u", pa.timestamp("us"))]))
    )
    add = log.file("f.parquet", nested, use_deprecated_int96_timestamps=True)
    log.begin(("t", "timestamp"), ("a", "integer"), ("s", struct(("u", "timestamp"))), more=[add])


@table
def absolute_paths(path):
    log = Log(path)
    other = f"{path}-elsewhere/a b"
    adds = [
        log.file(
            f"{other}/f1.parquet", ints(1), path=f"file:{other}/f1.parquet".replace(" ", "%20")
        ),
        log.file(
            f"{other}/f2.parquet", ints(2), path=f"file://{other}/f2.parquet".replace(" ", "%20")
        ),
        log.file(f"{other}/f3.parquet", ints(3), path=f"{other}/f3.parquet".replace(" ", "%20")),
        log.file("sub dir/f%4.parquet", ints(4), path="sub%20dir/f%254.parquet"),
        log.file("plus+and&ü.parquet", ints(5), path="plus+and&%C3%BC.parquet"),
        log.file("p=a%2Fb/f.parquet", ints(6), path="p=a%252Fb/f.parquet"),
    ]
    log.begin(("a", "integer"), more=adds)
    log.commit(
        log.remove(f"{other}/f1.parquet".replace(" ", "%20")),
        log.remove(f"file:{other}/f3.parquet".replace(" ", "%20")),
    )


@table
def odd_log_lines(path):
    log = Log(path)
    adds = [log.file(f"f{number}.parquet", ints(number)) for number in range(6)]
    log.begin(("a", "integer"), more=[*adds[:2], "", "   ", '{"unknownAction":{"x":1}}'])
    first = json.dumps(adds[2]["add"] | {"tags": {"a": "b"}, "extra": [1, {"y": None}]})
    log.commit(
        f'  {{ "add" : {first} }}  \r', {"commitInfo": {"timestamp": 1}}, {"txn": {"appId": "x", "version": 1}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        {"cdc": {"path": "_change_data/x.parquet", "partitionValues": {}, "size": 1, "dataChange": False}},
    )  # fmt: skip
    log.commit(log.remove("f0.parquet"), adds[3])
    log.commit(adds[0], log.remove("f3.parquet"))  # comes back
    log.commit({"add": adds[4]["add"], "remove": None, "metaData": None})
    log.commit(log.remove("never-there.parquet"), log.remove("f5.parquet"), adds[5])


@table
def statistics_of_all_kinds(path):
    log = Log(path)
    adds = [
        log.file("none.parquet", ints(1)),
        log.file("empty.parquet", ints(2), stats=""),
        log.file("half.parquet", ints(3), stats={"numRecords": 1}),
        log.file("cut.parquet", ints(4), stats='{"numRecords":1,"minValues":{"a":'),
        log.file("nulls.parquet", ints(None), stats={"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {"a": 1}}),
        log.file("odd.parquet", ints(6), stats={"numRecords": 1, "minValues": {"a": "x"}, "maxValues": None, "nullCount": 3}),
    ]  # fmt: skip
    log.begin(("a", "integer"), more=adds)


@table
def arrow_written_types(path):
    log = Log(path)
    data = pa.table(
        {
            "large": pa.array(["x", None], pa.large_string()),
            "cat": pa.array(["u", "v"]).dictionary_encode(),
            "view": pa.array(["w", None], pa.string_view()),
            "ms": pa.array([1, None], pa.timestamp("ms", "UTC")),
            "zoned": pa.array([1_600_000_000_000_000, None], pa.timestamp("us", "Europe/Paris")),
            "naive": pa.array([5, None], pa.timestamp("us")),
            "u8": pa.array([255, None], pa.uint8()),
            "u16": pa.array([65535, None], pa.uint16()),
            "u32": pa.array([4294967295, None], pa.uint32()),
            "fixed": pa.array([b"abc", None], pa.binary(3)),
            "items": pa.array([[1, None], None], pa.large_list(pa.int32())),
            "fixed_list": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
            "dec": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
            "wide": pa.array([Decimal("1.25"), None], pa.decimal256(20, 2)),
            "small": pa.array([1, -5], pa.int8()),
            "text_as_bytes": pa.array([b"hi", None], pa.binary()),
            "bytes_as_text": pa.array(["hi", None], pa.string()),
            "mp": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        }
    )
    add = log.file("f.parquet", data)
    log.begin(
        ("large", "string"), ("cat", "string"), ("view", "string"), ("ms", "timestamp"), ("zoned", "timestamp"),
        ("naive", "timestamp"), ("u8", "short"), ("u16", "integer"), ("u32", "long"), ("fixed", "binary"),
        ("items", array("integer")), ("fixed_list", array("integer")), ("dec", "decimal(9,2)"), ("wide", "decimal(20,2)"),
        ("small", "byte"), ("text_as_bytes", "string"), ("bytes_as_text", "binary"), ("mp", mapping("string", "integer")),
        more=[add],
    )  # fmt: skip


def one_type(name, kind, values, **options):
    def make(path):
        log = Log(path)
        data = values() if callable(values) else values
        log.begin(("a", kind), ("b", "integer"), reader=3, writer=7,
                  more=[log.file("f.parquet", {"a": data}, **options)], features=["timestampNtz", "typeWidening", "variantType"])  # fmt: skip

    TABLES[f"file_has_{name}"] = make


one_type("int64_for_int", "integer", pa.array([1, 2], pa.int64()))
one_type("int64_for_timestamp", "timestamp", pa.array([1, 2], pa.int64()))
one_type("int64_for_interval", "interval day to second", pa.array([1, -86_400_000_001], pa.int64()))
one_type("int64_for_decimal", "decimal(20,0)", pa.array([1, 2], pa.int64()))
one_type("int32_for_decimal", "decimal(10,0)", pa.array([1, 2], pa.int32()))
one_type("int32_for_decimal_12_2", "decimal(12,2)", pa.array([1, 2], pa.int32()))
one_type("int8_for_float", "float", pa.array([1, 2], pa.int8()))
one_type("int16_for_double", "double", pa.array([1, 2], pa.int16()))
one_type("int64_for_double", "double", pa.array([1, 2], pa.int64()))
one_type("float_for_double", "double", pa.array([1.1, 2], pa.float32()))
one_type("double_for_float", "float", pa.array([1.5, 2], pa.float64()))
one_type("date_for_timestamp", "timestamp", pa.array([1, 2], pa.date32()))
one_type("date_for_timestamp_ntz", "timestamp_ntz", pa.array([1, 2], pa.date32()))
one_type("timestamp_for_date", "date", pa.array([1, 2], pa.timestamp("us", "UTC")))
one_type("zoned_for_ntz", "timestamp_ntz", pa.array([1, 2], pa.timestamp("us", "UTC")))
one_type("naive_for_timestamp", "timestamp", pa.array([1, 2], pa.timestamp("us")))
one_type("nanos", "timestamp", pa.array([1000, 2000], pa.timestamp("ns", "UTC")))
one_type("naive_ms_for_ntz", "timestamp_ntz", pa.array([1, 2], pa.timestamp("ms")))
one_type(
    "decimal_wider_scale", "decimal(12,4)", lambda: pa.array([Decimal("1.25")], pa.decimal128(9, 2))
)
one_type(
    "decimal_less_scale", "decimal(12,1)", lambda: pa.array([Decimal("1.20")], pa.decimal128(9, 2))
)
one_type(
    "decimal_less_precision",
    "decimal(4,2)",
    lambda: pa.array([Decimal("1.20")], pa.decimal128(9, 2)),
)
one_type("int32_beyond_byte", "byte", pa.array([1, 300], pa.int32()))
one_type("uint8_beyond_byte", "byte", pa.array([255, 1], pa.uint8()))
one_type("uint16_beyond_short", "short", pa.array([65535, 1], pa.uint16()))
one_type("date_for_int", "integer", pa.array([1, -2], pa.date32()))
one_type("timestamp_for_long", "long", pa.array([1, -2], pa.timestamp("ms", "UTC")))
one_type("nanos_for_long", "long", pa.array([1001, -1999], pa.timestamp("ns", "UTC")))
one_type("time_for_int", "integer", pa.array([5, 6], pa.time32("ms")))
one_type(
    "decimal_for_long",
    "long",
    lambda: pa.array([Decimal(1), Decimal(-2)], pa.decimal128(10, 0)),
    store_decimal_as_integer=True,
)
one_type("other_name_of_timestamp", "timestamp_ltz", pa.array([1], pa.timestamp("us", "UTC")))
one_type("spaces_in_decimal", "decimal( 10 , 0 )", pa.array([1], pa.int32()))
one_type("collation", "string collate UNICODE_CI", pa.array(["a", "A"]))
one_type("string_for_int", "integer", pa.array(["1"]))
one_type("bool_for_int", "integer", pa.array([True]))
one_type("int16_for_date", "date", pa.array([1, -2], pa.int16()))
one_type("string_for_date", "date", pa.array(["2020-01-01"]))
one_type("null_type", "string", pa.array([None, None], pa.null()))
one_type("nothing_for_void", "void", pa.array([None, None], pa.int32()))
one_type("uint64_for_long", "long", pa.array([1, 2], pa.uint64()))
one_type("uint64_for_decimal", "decimal(20,0)", pa.array([1, 2**63], pa.uint64()))
one_type("time_for_long", "long", pa.array([1, 2], pa.time64("us")))
one_type("half_float", "float", lambda: pa.array([1.5, 2], pa.float16()))
one_type("invalid_utf8", "string", pa.array([b"\xff\xfe", b"ok"], pa.binary()))
one_type("varchar", "varchar(3)", pa.array(["abc", "d"]))
one_type("bare_char", "char(4)", pa.array(["abc", "d"]))
one_type("list_of_structs_for_list", array("integer"), lambda: pa.array([[{"x": 1}]]))
one_type("struct_for_map", mapping("string", "integer"), lambda: pa.array([{"x": 1}]))
one_type("scalar_for_struct", struct(("x", "integer")), pa.array([1], pa.int32()))


@table
def char_columns(path):
    log = Log(path)
    meta = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    nested = {"__CHAR_VARCHAR_TYPE_STRING": "array<char(3)>"}
    add = log.file(
        "f.parquet",
        {"c": ["ab", None, "abcdefg", "é"], "n": pa.array([["x"]] * 4)},
        partition={"p": "q"},
    )
    log.begin(
        ("c", "string", meta),
        ("n", array("string"), nested),
        ("p", "string", meta),
        partitions=["p"],
        more=[add],
    )


@table
def upper_and_lower_case(path):
    log = Log(path)
    data = pa.table(
        {"ID": [1, 2], "Struct": pa.array([{"InNer": 1}, None], pa.struct([("InNer", pa.int64())]))}
    )
    log.begin(("id", "long"), ("sTRUCT", struct(("inner", "long"))), ("P", "string"), partitions=["P"],
              more=[log.file("f.parquet", data, partition={"P": "x"})])  # fmt: skip


@table
def same_name_in_two_cases(path):
    log = Log(path)
    log.begin(("a", "long"), more=[log.file("f.parquet", {"a": [1], "A": [2]})])


@table
def other_columns_in_files(path):
    log = Log(path)
    adds = [
        log.file("more.parquet", {"x": [9], "a": [1], "y": [[1]]}),
        log.file("less.parquet", {"y": [[2]]}),
        log.file("none_of_them.parquet", {"z": [3, 4]}),
    ]
    log.begin(("a", "long"), ("b", "string"), ("y", array("long")), ("c", "date"), more=adds)


@table
def partition_column_also_in_file(path):
    log = Log(path)
    add = log.file("f.parquet", {"a": [1], "p": ["file"]}, partition={"p": "log"})
    log.begin(("p", "string"), ("a", "long"), ("q", "integer"), partitions=["q", "p"], more=[add])


@table
def legacy_mapping_by_name(path):
    log = Log(path)
    data = {
        "col-1": [1, 2],
        "A": [7, 8],
        "col-2": pa.array([{"f-1": "x"}, None], pa.struct([("f-1", pa.string())])),
    }
    log.begin(
        ("A", "long", mapped(1, "col-1")), ("s", struct(("x", "string", mapped(4, "f-1")), ("y", "long", mapped(5, "f-2"))), mapped(2, "col-2")),
        ("part", "string", mapped(3, "col-3")), reader=2, writer=5, partitions=["part"],
        conf={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "5"},
        more=[log.file("f.parquet", data, partition={"col-3": "é"})],
    )  # fmt: skip


def with_ids(schema, ids):
    fields = [
        field.with_metadata({"PARQUET:field_id": str(ids[field.name])})
        if field.name in ids
        else field
        for field in schema
    ]
    return pa.schema(fields)


@table
def legacy_mapping_by_id(path):
    log = Log(path)
    inner = pa.struct([pa.field("any", pa.string(), metadata={"PARQUET:field_id": "4"})])
    schema = pa.schema([
        pa.field("zz", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "77"}),
        pa.field("l", pa.list_(pa.field("element", inner)), metadata={"PARQUET:field_id": "2"}),
    ])  # fmt: skip
    data = pa.table([[1, 2], [8, 9], [[{"any": "x"}], None]], schema=schema)
    log.begin(
        ("a", "long", mapped(1, "other")), ("l", array(struct(("x", "string", mapped(4, "phys")))), mapped(2, "ll")),
        ("gone", "long", mapped(9, "a")), reader=2, writer=5, conf={"delta.columnMapping.mode": "id"},
        more=[log.file("f.parquet", data)],
    )  # fmt: skip


@table
def mapping_by_id_partly(path):
    log = Log(path)
    schema = pa.schema(
        [pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "1"}), pa.field("b", pa.int64())]
    )
    log.begin(("x", "long", mapped(1, "a")), ("b", "long", mapped(2, "b")), reader=2, writer=5, conf={"delta.columnMapping.mode": "id"},
              more=[log.file("f.parquet", pa.table([[1], [2]], schema=schema))])  # fmt: skip


@table
def wrong_hint_and_broken_checkpoints(path):
    log = Log(path)
    log.begin(("a", "integer"), more=[log.file("f0.parquet", ints(0))])
    for number in range(1, 4):
        log.commit(log.file(f"f{number}.parquet", ints(number)))
    folder = log.path / "_delta_log"
    (folder / "_last_checkpoint").write_text('{"version":99,"size":3}')
    (folder / f"{1:020d}.checkpoint.parquet").write_bytes(b"")
    (folder / f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet").write_bytes(b"half")
    (folder / f"{0:020d}.crc").write_text("{}")
    (folder / ".s3-optimization-0").write_text("")
    (folder / f"{3:020d}.json.tmp").write_text("garbage")


@table
def several_row_groups(path):
    log = Log(path)
    add = log.file(
        "f.parquet",
        {"a": pa.array(range(1000), pa.int32())},
        row_group_size=64,
        stats={"numRecords": 1000},
    )
    log.begin(("a", "integer"), more=[add])


DELETED = {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": 0}


def portable(rows, *, native=False):
    """A bitmap of row numbers below 65,536 as Delta lays it out."""
    body = (12346).to_bytes(4, "little") + (1).to_bytes(4, "little") + (0).to_bytes(2, "little")
    body += (len(rows) - 1).to_bytes(2, "little") + (16).to_bytes(4, "little")
    body += b"".join(row.to_bytes(2, "little") for row in rows)
    if native:
        return (
            (1681511376).to_bytes(4, "little")
            + (1).to_bytes(4, "little")
            + len(body).to_bytes(4, "little")
            + body
        )
    return (
        (1681511377).to_bytes(4, "little")
        + (1).to_bytes(8, "little")
        + (0).to_bytes(4, "little")
        + body
    )


def z85(data):
    alphabet = (
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    )
    data = data + b"\0" * (-len(data) % 4)
    text = ""
    for at in range(0, len(data), 4):
        number = int.from_bytes(data[at : at + 4], "big")
        text += "".join(alphabet[number // 85**power % 85] for power in range(4, -1, -1))
    return text


def in_file(target, rows, lead=1):
    import zlib

    data = portable(rows)
    body = (
        b"\x01"
        + b"?" * (lead - 1)
        + len(data).to_bytes(4, "big")
        + data
        + zlib.crc32(data).to_bytes(4, "big")
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(body)
    return {"sizeInBytes": len(data), "cardinality": len(rows), "offset": lead}


@table
def deletion_vectors_of_all_kinds(path):
    import uuid

    log = Log(path)
    inline = portable([0, 3])
    number = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    relative = in_file(log.path / "ab" / f"deletion_vector_{number}.bin", [1, 2, 7], lead=9)
    absolute = in_file(log.path.parent / "dv elsewhere" / "x.bin", [9])
    here = in_file(log.path / f"deletion_vector_{number}.bin", list(range(10)))
    vectors = [
        {
            "storageType": "i",
            "pathOrInlineDv": z85(inline),
            "sizeInBytes": len(inline),
            "cardinality": 2,
        },
        {"storageType": "u", "pathOrInlineDv": "ab" + z85(number.bytes), **relative},
        {
            "storageType": "p",
            "pathOrInlineDv": f"file:{log.path.parent}/dv%20elsewhere/x.bin",
            **absolute,
        },
        {"storageType": "u", "pathOrInlineDv": z85(number.bytes), **here},
    ]
    data = [{"a": pa.array(range(base, base + 10), pa.int32())} for base in (0, 10, 20, 30)]
    adds = [log.file(f"f{at}.parquet", data[at], dv=vectors[at], row_group_size=4, stats={"numRecords": 10, "tightBounds": False})
            for at in range(4)]  # fmt: skip
    plain = log.file("f0.parquet", data[0], row_group_size=4)
    log.begin(("a", "integer"), reader=3, writer=7, features=["deletionVectors"], more=[plain])
    log.commit(log.remove("f0.parquet"), *adds)


@table
def catalog_managed(path):
    log = Log(path)
    info = {
        "commitInfo": {
            "inCommitTimestamp": 1000,
            "timestamp": 1000,
            "operation": "WRITE",
            "operationParameters": {},
            "engineInfo": "x",
            "txnId": "y",
        }
    }
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged", "vacuumProtocolCheck"],
                             "writerFeatures": ["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"]}}  # fmt: skip
    meta = {"metaData": {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(struct(("a", "integer"))),
                         "partitionColumns": [], "configuration": {"delta.enableInCommitTimestamps": "true"}, "createdTime": 0}}  # fmt: skip
    log.commit(info, protocol, meta, log.file("f.parquet", ints(1)))


@table
def adaptive_metadata(path):
    log = Log(path)
    needed = ["adaptiveMetadata-preview", "deletionVectors", "domainMetadata", "catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp", "columnMapping", "rowTracking", "v2Checkpoint", "appendOnly", "invariants"]  # fmt: skip
    readers = [
        "adaptiveMetadata-preview",
        "deletionVectors",
        "catalogManaged",
        "vacuumProtocolCheck",
        "columnMapping",
        "v2Checkpoint",
    ]
    info = {
        "commitInfo": {
            "inCommitTimestamp": 1000,
            "timestamp": 1000,
            "operation": "WRITE",
            "operationParameters": {},
            "engineInfo": "x",
            "txnId": "y",
        }
    }
    protocol = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": readers,
            "writerFeatures": needed,
        }
    }
    meta = {"metaData": {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(struct(("a", "integer"))),
                         "partitionColumns": [], "configuration": {"delta.enableInCommitTimestamps": "true"}, "createdTime": 0}}  # fmt: skip
    log.commit(info, protocol, meta, log.file("f.parquet", ints(1)))


@table
def checkpoint_with_little_in_it(path):
    """A checkpoint as a small writer makes it: no stats column, partition values as a map."""
    log = Log(path)
    log.begin(
        ("a", "integer"),
        ("p", "string"),
        partitions=["p"],
        more=[log.file("f0.parquet", ints(0), partition={"p": "x"})],
    )
    log.commit(log.file("f1.parquet", ints(1), partition={"p": None}))
    first = [
        json.loads(line)
        for version in (0, 1)
        for line in (log.path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    ]
    rows = [{"protocol": None, "metaData": None, "add": None} | action for action in first]
    for row in rows:
        if row["add"]:
            row["add"]["partitionValues"] = list(row["add"]["partitionValues"].items())
        if row["metaData"]:
            row["metaData"]["configuration"] = []
            row["metaData"]["format"] = {"provider": "parquet", "options": []}
    text_map = pa.map_(pa.string(), pa.string())
    schema = pa.schema([
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
        ("metaData", pa.struct([("id", pa.string()), ("format", pa.struct([("provider", pa.string()), ("options", text_map)])),
                                ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())),
                                ("configuration", text_map), ("createdTime", pa.int64())])),
        ("add", pa.struct([("path", pa.string()), ("partitionValues", text_map), ("size", pa.int64()),
                           ("modificationTime", pa.int64()), ("dataChange", pa.bool_())])),
    ])  # fmt: skip
    pq.write_table(
        pa.Table.from_pylist(rows, schema=schema),
        log.path / "_delta_log" / f"{1:020d}.checkpoint.parquet",
    )
    for version in (0, 1):
        (log.path / "_delta_log" / f"{version:020d}.json").unlink()
    log.commit(log.file("f2.parquet", ints(2), partition={"p": "y"}), log.remove("f0.parquet"))


@table
def compacted_log(path):
    log = Log(path)
    log.begin(("a", "integer"), more=[log.file("f0.parquet", ints(0))])
    log.commit(log.file("f1.parquet", ints(1)))
    second = log.file("f2.parquet", ints(2))
    log.commit(second, log.remove("f1.parquet"))
    lines = [json.dumps(action) for action in (second, log.remove("f1.parquet"))]
    (log.path / "_delta_log" / f"{1:020d}.{2:020d}.compacted.json").write_text(
        "\n".join(lines) + "\n"
    )
    log.commit(log.file("f3.parquet", ints(3)))


@table
def same_file_twice(path):
    """A file that is added again with other statistics counts once."""
    log = Log(path)
    log.begin(("a", "integer"), more=[log.file("f.parquet", ints(1))])
    log.commit(log.file("f.parquet", ints(1), stats={"numRecords": 1}))


@table
def column_added_with_a_default(path):
    def default(text):
        return {"CURRENT_DEFAULT": text, "EXISTS_DEFAULT": text}

    log = Log(path)
    file = {"a": pa.array([1], pa.int32()), "s": pa.array([{"x": 1}])}
    log.begin(
        ("a", "integer", default("5")), ("i", "integer", default("7")), ("t", "string", default("'x y'")),
        ("d", "date", default("DATE '2020-01-02'")), ("c", "decimal(5,2)", default("1.50BD")), ("n", "long", default("NULL")),
        ("s", struct(("x", "long"), ("y", "integer", default("9")))),
        reader=1, writer=7, features=["allowColumnDefaults"], more=[log.file("f.parquet", file)],
    )  # fmt: skip


@table
def detours_in_paths(path):
    log = Log(path)
    names = ["./a.parquet", "x/../b.parquet", "x//c.parquet", "./d.parquet", "e.parquet"]
    (log.path / "x").mkdir()
    adds = [log.file(name, ints(number)) for number, name in enumerate(names)]
    log.begin(("a", "integer"), more=adds)
    log.commit(*[log.remove(name) for name in ("a.parquet", "b.parquet", "./e.parquet")])


@table
def bare_partition_values(path):
    log = Log(path)
    values = [5, True, 1.5]
    adds = [log.file(f"f{at}", ints(at), partition={"p": value}) for at, value in enumerate(values)]
    log.begin(("a", "integer"), ("p", "string"), partitions=["p"], more=adds)


PARTITION_INTERVALS = ["INTERVAL '1 02:03:04' DAY TO SECOND", "INTERVAL '-1 02:03:04.567' DAY TO SECOND", "2 00:00:01", None]  # fmt: skip


@table
def intervals_as_partitions(path):
    log = Log(path)
    adds = [
        log.file(f"f{at}", ints(at), partition={"p": text})
        for at, text in enumerate(PARTITION_INTERVALS)
    ]
    log.begin(("a", "integer"), ("p", "interval day to second"), partitions=["p"], more=adds)


@table
def mapping_by_id_only_inside(path):
    """Ids inside a struct count as ids of the file; the columns that have none are null."""
    log = Log(path)
    inner = pa.struct([pa.field("f", pa.int64(), metadata={"PARQUET:field_id": "2"})])
    data = pa.table([[{"f": 1}, None], [5, 6]], schema=pa.schema([("s", inner), ("a", pa.int64())]))
    log.begin(("s", struct(("f", "long", mapped(2, "f"))), mapped(1, "s")), ("a", "long", mapped(3, "a")), reader=2, writer=5,
              conf={"delta.columnMapping.mode": "id"}, more=[log.file("f.parquet", data)])  # fmt: skip


@table
def metadata_without_a_schema(path):
    log = Log(path)
    log.commit(
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": {"id": "x"}}
    )


@table
def several_actions_in_a_line(path):
    log = Log(path)
    adds = [log.file(f"f{number}.parquet", ints(number)) for number in range(3)]
    log.begin(("a", "integer"), more=[adds[0]])
    log.commit(adds[1] | log.remove("f0.parquet"), {"commitInfo": {"x": 1}} | adds[2])


@table
def deletion_vector_that_the_protocol_forgot(path):
    log = Log(path)
    rows = portable([1])
    vector = {"storageType": "i", "pathOrInlineDv": z85(rows), "sizeInBytes": len(rows), "cardinality": 1}  # fmt: skip
    log.begin(("a", "integer"), more=[log.file("f.parquet", ints(1, 2, 3), dv=vector)])
