import shutil
from dataclasses import replace

import pytest

from headrace import read_arrow, read_table
from headrace.context import use_context
from headrace.exceptions import UserError
from tasks.flight_schemas import CSV_TABLES
from tasks.load_flights import load_flights


@pytest.fixture
def csv_copy(flight_csv, tmp_path):
    return shutil.copytree(flight_csv, tmp_path / "csv")


@pytest.fixture
def context(task_context, tmp_path):
    with use_context(
        replace(task_context, lake=str(tmp_path / "lake"), reads=[], writes=[])
    ) as own:
        yield own


@pytest.mark.spark
def test_tables_have_the_given_types_and_unique_keys(spark, loaded):
    for name, table in CSV_TABLES.items():
        frame = read_table(loaded[name], spark=spark)
        assert dict(frame.dtypes) == table.columns
        assert frame.select(*table.key).distinct().count() == loaded[name].row_count > 0
    assert loaded["rejected_rows"].row_count == 0


@pytest.mark.spark
def test_na_and_empty_fields_are_nulls(spark, loaded):
    cancelled = read_table(loaded["flights"], spark=spark).where("dep_time IS NULL")
    assert cancelled.count() > 0
    assert cancelled.where("arr_delay IS NOT NULL OR dep_delay IS NOT NULL").count() == 0


@pytest.mark.spark
def test_every_bad_row_is_kept_aside_with_its_reason(spark, csv_copy, context):
    flights = csv_copy / "flights.csv"
    good = flights.read_text().splitlines()
    first = good[1].split(",")
    bad = {
        "broken row": [",".join(first[:7]), ",".join([*first, "one more"])],
        "wrong type": [",".join(["2013", "13th", *first[2:]])],
        "missing key": [",".join([*first[:9], "NA", *first[10:]])],
        "duplicate key": [good[1], good[1]],
    }
    lines = [line for reason in bad.values() for line in reason]
    flights.write_text("\n".join([*good, *lines, ""]))
    # Another order of columns, one more column, a byte order mark, CRLF: all of that is fine.
    (csv_copy / "airlines.csv").write_bytes(
        '\ufeffname,since,carrier\r\nDelta,1925,DL\r\n"Envoy, Inc.",1998,MQ\r\n'.encode()
    )

    tables = load_flights(str(csv_copy), spark=spark, context=context)

    rejected = read_arrow(tables["rejected_rows"]).to_pylist()
    found = {(row["reason"], row["row_text"]) for row in rejected}
    assert found == {(reason, line) for reason, texts in bad.items() for line in texts}
    assert len(rejected) == len(lines)
    assert {row["source_file"] for row in rejected} == {"flights.csv"}
    details = {row["reason"]: row["detail"] for row in rejected}
    assert details["wrong type"] == "month is not int: 13th"
    assert details["missing key"] == "carrier is empty"
    assert tables["flights"].row_count == len(good) - 1
    assert read_arrow(tables["airlines"]).sort_by("carrier").to_pylist() == [
        {"carrier": "DL", "name": "Delta"},
        {"carrier": "MQ", "name": "Envoy, Inc."},
    ]


@pytest.mark.spark
def test_a_file_without_a_usable_row_stops_the_load(spark, csv_copy, context):
    weather = csv_copy / "weather.csv"
    header = weather.read_text().splitlines()[0]
    weather.write_text(f"{header}\nthis is no weather\n")
    # The files before it are not of interest here.
    header = (csv_copy / "flights.csv").read_text().splitlines()[:3]
    (csv_copy / "flights.csv").write_text("\n".join(header))
    with pytest.raises(UserError, match=r"weather\.csv has no usable row(.|\n)*broken row"):
        load_flights(str(csv_copy), spark=spark, context=context)


def test_a_missing_column_is_named_with_the_file_and_what_it_has(csv_copy, context):
    planes = csv_copy / "planes.csv"
    header, *rows = planes.read_text().splitlines()
    planes.write_text("\n".join([header.replace("tailnum", "tail_num"), *rows]))
    with pytest.raises(UserError) as caught:
        load_flights(str(csv_copy), spark=None, context=context)
    text = str(caught.value)
    assert "planes.csv has no column 'tailnum'" in text
    assert "Found: tail_num, year, type" in text
    assert "'tail_num' meant" in text


def test_an_empty_file_has_no_columns(csv_copy, context):
    (csv_copy / "airports.csv").write_text("")
    with pytest.raises(UserError, match=r"airports\.csv has no column 'faa'(.|\n)*an empty file"):
        load_flights(str(csv_copy), spark=None, context=context)
