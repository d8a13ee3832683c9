"""Features of a table that a writer has to know: kept, or refused by name before any file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.delta.arrow import read_arrow
from headrace.delta.log import TableFiles, commit_versions, read_commit
from headrace.delta.schema import Field, Primitive, Struct, walk_fields
from headrace.delta.snapshot import load_snapshot
from headrace.delta.write_schema import protocol_for, schema_json
from headrace.exceptions import (
    ConstraintViolatedError,
    UnsupportedWriteError,
    WriteRequestError,
)
from headrace.profiles.storage import Storage
from tests.delta.written import data_files, write_arrow


def make_table(folder, *, protocol, fields, configuration=None, partitions=()):
    """A table with a log of one commit, written by hand."""
    schema = {"type": "struct", "fields": fields}
    metadata = {
        "id": "0",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": list(partitions),
        "configuration": configuration or {},
    }
    log = Path(folder, "_delta_log")
    log.mkdir(parents=True)
    lines = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    return str(folder)


def column(name="x", kind="long", *, nullable=True, **metadata):
    """A field; `delta__x` in a keyword stands for `delta.x`."""
    named = {key.replace("__", ".") if key[0] != "_" else key: v for key, v in metadata.items()}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": named}


def features(*names, reader=1):
    return {"minReaderVersion": reader, "minWriterVersion": 7, "writerFeatures": list(names)} | (
        {"readerFeatures": list(names)} if reader == 3 else {}
    )


REFUSED = {
    "writer version 8": ({"minReaderVersion": 1, "minWriterVersion": 8}, [column()], {}),
    "icebergCompatV1": (features("icebergCompatV1"), [column()], {}),
    "coordinatedCommits-preview": (features("coordinatedCommits-preview"), [column()], {}),
    "materializePartitionColumns": (features("materializePartitionColumns"), [column()], {}),
    "somethingNew": (features("somethingNew"), [column()], {}),
    "identity column 'x'": ({"minReaderVersion": 1, "minWriterVersion": 6}, [column(delta__identity__start=1)], {}),
    "a column of type void": ({"minReaderVersion": 1, "minWriterVersion": 2}, [column(kind="void")], {}),
    "CHECK c": ({"minReaderVersion": 1, "minWriterVersion": 3}, [column()], {"delta.constraints.c": "x rlike 'a'"}),
    "invariant of x": (
        {"minReaderVersion": 1, "minWriterVersion": 2},
        [column(delta__invariants=json.dumps({"expression": {"expression": "exists(select 1)"}}))],
        {},
    ),
    "generated column x": (
        {"minReaderVersion": 1, "minWriterVersion": 4},
        [column(delta__generationExpression="hash(y)"), column("y")],
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_honoured_is_refused_by_name_before_a_file(tmp_path, name):
    protocol, fields, configuration = REFUSED[name]
    uri = make_table(tmp_path / "t", protocol=protocol, fields=fields, configuration=configuration)
    with pytest.raises(UnsupportedWriteError) as caught:
        write_arrow({"x": [1]}, uri)
    assert name in str(caught.value)
    assert data_files(uri) == set()


def test_an_append_only_table_takes_appends_only(tmp_path):
    uri = make_table(
        tmp_path / "t",
        protocol={"minReaderVersion": 1, "minWriterVersion": 2},
        fields=[column()],
        configuration={"delta.appendOnly": "true"},
    )
    write_arrow({"x": [1]}, uri)
    for options in ({"mode": "overwrite"}, {"mode": "merge", "merge_on": ["x"]}):
        with pytest.raises(UnsupportedWriteError, match="appendOnly"):
            write_arrow({"x": [1]}, uri, **options)


def text_table(folder):
    """A char(3), a varchar(3), and both inside nested columns."""
    items = {"type": "array", "elementType": "string", "containsNull": True}
    inner = {"type": "struct", "fields": [column("c", "string"), column("n")]}
    pairs = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    declared = {
        "c": ("string", "char(3)"), "v": ("string", "varchar(3)"), "l": (items, "array<varchar(3)>"),
        "m": (pairs, "map<char(2),struct<c:char(3),n:bigint>>"),
    }  # fmt: skip
    fields = [
        column(name, kind, __CHAR_VARCHAR_TYPE_STRING=text)
        for name, (kind, text) in declared.items()
    ]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    return make_table(folder, protocol=protocol, fields=fields)


def text_rows(*rows):
    import pyarrow as pa

    inner = pa.struct([("c", pa.string()), ("n", pa.int64())])
    schema = [
        ("c", pa.string()), ("v", pa.large_string()), ("l", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), inner)),
    ]  # fmt: skip
    return pa.Table.from_pylist(list(rows), pa.schema(schema))


def test_texts_are_padded_and_cut_to_their_declared_length(tmp_path):
    import pyarrow.parquet as pq

    uri = text_table(tmp_path / "t")
    row = {"c": "é", "v": "ab    ", "l": ["x", None, "abc "], "m": [("k", {"c": "a  ", "n": 1})]}
    write_arrow(text_rows(row, {}), uri)
    (file,) = Path(uri).rglob("*.parquet")
    assert pq.read_table(file).to_pylist() == [
        {"c": "é  ", "v": "ab ", "l": ["x", None, "abc"], "m": [("k ", {"c": "a  ", "n": 1})]},
        dict.fromkeys("cvlm"),
    ]
    for text, rows in {
        "c = 'é'": 1,
        "c in ('x', 'é     ')": 1,
        "c > 'é'": 0,
        "v = 'ab'": 0,
    }.items():
        assert read_arrow(uri, filter=text).num_rows == rows, text


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"c": "abcd"}, r"char\(3\) of c"),
        ({"v": "abcd  "}, r"varchar\(3\) of v"),
        ({"l": ["abc", None, "abcd"]}, r"varchar\(3\) of l.element"),
        ({"m": [("abc", None)]}, r"char\(2\) of m.key"),
        ({"m": [("k", {"c": "abcd", "n": 1})]}, r"char\(3\) of m.value.c"),
    ],
)
def test_a_text_that_is_too_long_is_refused_with_its_row(tmp_path, row, rule):
    uri = text_table(tmp_path / "t")
    with pytest.raises(ConstraintViolatedError, match=rf"the type {rule}[\s\S]*v='x'|v='abcd  '"):
        write_arrow(text_rows({"v": "x"} | row, {"v": "y"}), uri)


def test_an_invariant_is_kept(tmp_path):
    text = json.dumps({"expression": {"expression": "x > 3"}})
    uri = make_table(
        tmp_path / "t",
        protocol={"minReaderVersion": 1, "minWriterVersion": 2},
        fields=[column(delta__invariants=text)],
    )
    write_arrow({"x": [4]}, uri)
    with pytest.raises(ConstraintViolatedError, match=r"x > 3[\s\S]*x=3"):
        write_arrow({"x": [5, 3, 1]}, uri)


NESTED = {
    "type": "struct",
    "fields": [
        column("a", nullable=False),
        column("l", {"type": "array", "elementType": "long", "containsNull": False}),
        column("m", {"type": "map", "keyType": "string", "valueType": {"type": "struct", "fields": [column("z", nullable=False)]}, "valueContainsNull": True}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "path"),
    [
        (None, None),
        ({"a": 1, "l": None, "m": None}, None),
        ({"a": 1, "l": [1], "m": [("k", None), ("l", {"z": 1})]}, None),
        ({"a": None, "l": None, "m": None}, "s.a"),
        ({"a": 1, "l": [1, None], "m": None}, "s.l.element"),
        ({"a": 1, "l": None, "m": [("k", {"z": None})]}, "s.m.value.z"),
    ],
)
def test_nested_not_null_holds_where_the_parent_is_there(tmp_path, row, path):
    import pyarrow as pa

    kind = pa.struct(
        [
            ("a", pa.int64()),
            ("l", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.struct([("z", pa.int64())]))),
        ]
    )
    uri = make_table(
        tmp_path / "t",
        protocol={"minReaderVersion": 1, "minWriterVersion": 2},
        fields=[column("s", NESTED), column("n")],
    )
    good = {"a": 1, "l": [], "m": []}
    data = pa.table({"s": pa.array([good, row], kind), "n": [1, 2]})
    if path is None:
        assert write_arrow(data, uri).row_count == 2
    else:
        with pytest.raises(ConstraintViolatedError, match=rf"{path} is null[\s\S]*n=2"):
            write_arrow(data, uri)


def test_legacy_column_mapping_is_written_by_physical_name(tmp_path):
    import pyarrow.parquet as pq

    mapped = column("x", delta__columnMapping__id=1, delta__columnMapping__physicalName="col-1")
    other = column(
        "p", "string", delta__columnMapping__id=2, delta__columnMapping__physicalName="col-2"
    )
    uri = make_table(
        tmp_path / "t",
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        fields=[mapped, other],
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
        partitions=["p"],
    )
    ref = write_arrow({"x": [7], "p": ["a"]}, uri)
    file = pq.read_schema(next(Path(uri).rglob("*.parquet")))
    assert file.names == ["col-1"]
    assert file.field("col-1").metadata[b"PARQUET:field_id"] == b"1"
    add = next(a["add"] for a in read_commit(TableFiles(uri, Storage()), ref.version) if "add" in a)
    assert add["partitionValues"] == {"col-2": "a"}
    assert json.loads(add["stats"])["minValues"] == {"col-1": 7}


def test_a_column_is_added_to_a_mapped_table_under_a_new_name_and_id(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    mapped = column("x", delta__columnMapping__id=4, delta__columnMapping__physicalName="y")
    uri = make_table(
        tmp_path / "t",
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        fields=[mapped],
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "7"},
    )
    write_arrow({"x": [1]}, uri)
    # `y` is what another column is called in the files.
    inner = pa.array([[{"z": 5, "w": "q"}]], pa.list_(pa.struct([("z", pa.int64()), ("w", pa.string())])))  # fmt: skip
    write_arrow(pa.table({"x": [2], "y": ["new"], "l": inner}), uri, schema_mode="merge")
    write_arrow(pa.table({"x": [3], "l": pa.array([[{"v": 1}]])}), uri, schema_mode="merge")
    nothing = {"z": None, "w": None, "v": None}
    assert sorted(read_arrow(uri).to_pylist(), key=lambda row: row["x"]) == [
        {"x": 1, "y": None, "l": None},
        {"x": 2, "y": "new", "l": [nothing | {"z": 5, "w": "q"}]},
        {"x": 3, "y": None, "l": [nothing | {"v": 1}]},
    ]
    snapshot = load_snapshot(uri)
    ids = {child.name: child.field_id for child in walk_fields(snapshot.schema)}
    assert ids == {"x": 4, "y": 8, "l": 9, "z": 10, "w": 11, "v": 12}
    assert snapshot.configuration["delta.columnMapping.maxColumnId"] == "12"
    names = [child.physical_name for child in walk_fields(snapshot.schema)]
    assert len(set(names)) == 6
    assert names[0] == "y"
    assert all(name.startswith("col-") for name in names[1:])
    files = [set(pq.read_schema(file).names) for file in Path(uri).rglob("*.parquet")]
    assert sorted(map(len, files)) == [1, 3, 3]
    with pytest.raises(WriteRequestError, match="replaced by Spark only"):
        write_arrow({"x": [1]}, uri, mode="overwrite", schema_mode="overwrite")


def test_a_schema_with_ntz_raises_the_protocol_and_keeps_what_it_had(tmp_path):
    uri = make_table(
        tmp_path / "t",
        protocol={"minReaderVersion": 1, "minWriterVersion": 3},
        fields=[column()],
        configuration={"delta.constraints.c": "x > 0"},
    )
    import datetime as dt

    naive = dt.datetime(2020, 1, 1)  # noqa: DTZ001
    write_arrow({"x": [1], "t": [naive]}, uri, schema_mode="merge")
    actions = read_commit(TableFiles(uri, Storage()), 1)
    protocol = next(a["protocol"] for a in actions if "protocol" in a)
    assert protocol["readerFeatures"] == ["timestampNtz"]
    assert protocol["writerFeatures"] == [
        "appendOnly",
        "checkConstraints",
        "invariants",
        "timestampNtz",
    ]
    with pytest.raises(ConstraintViolatedError):
        write_arrow({"x": [0], "t": [naive]}, uri)
    assert commit_versions(TableFiles(uri, Storage())) == [0, 1]


def test_a_plain_schema_asks_for_the_lowest_protocol():
    plain = Struct((Field("x", Primitive("long")),))
    assert protocol_for(plain, None) == {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    assert json.loads(schema_json(plain))["fields"][0]["name"] == "x"
