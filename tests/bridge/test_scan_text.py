"""Which physical plans count as a plain scan: when in doubt, none."""

from __future__ import annotations

import pytest

from headrace.bridge.dataframe import _is_plain_scan

SCAN = """== Physical Plan ==
*(1) Project [id#1L, p#2, s#3]
+- *(1) ColumnarToRow
   +- FileScan parquet [id#1L,s#3,p#2] Batched: true, DataFilters: [], Format: Parquet, \
Location: PreparedDeltaFileIndex(1 paths)[file:/x], PartitionFilters: [], PushedFilters: [], ReadSchema: struct<id:bigint>
"""


def test_a_scan_with_its_columns_put_in_order_is_plain():
    assert _is_plain_scan(SCAN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s#3]\n", "s#3 AS id#9]\n"),
        ("s#3]\n", "(id#1L + 1) AS s#9L]\n"),
        ("PartitionFilters: []", "PartitionFilters: [isnotnull(p#2)]"),
        ("DataFilters: []", "DataFilters: [(id#1L > 3)]"),
        ("PushedFilters: []", "PushedFilters: [IsNotNull(id)]"),
        ("*(1) ColumnarToRow", "*(1) Filter (id#1L > 3)\n+- *(1) ColumnarToRow"),
        ("*(1) ColumnarToRow", "CollectLimit 5"),
        ("FileScan parquet", "InMemoryTableScan"),
        ("FileScan parquet", "LocalTableScan"),
        ("*(1) ColumnarToRow", "Union"),
    ],
)
def test_anything_more_is_not(old, new):
    assert not _is_plain_scan(SCAN.replace(old, new))
