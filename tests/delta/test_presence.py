"""Whether a pinned version's files are there is known without reading them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.delta import presence
from headrace.delta.presence import find_missing_file
from headrace.delta.snapshot import load_snapshot
from headrace.exceptions import TableNotFoundError
from tests.delta.handmade_tables import TABLES


@pytest.fixture(params=[500, 0], ids=["one by one", "by a listing"])
def _way(request, monkeypatch):
    monkeypatch.setattr(presence, "_ONE_BY_ONE", request.param)


@pytest.mark.usefixtures("_way")
def test_a_version_whose_files_were_vacuumed_names_one_of_them(delta_table):
    uri = delta_table([{"id": 1, "day": "a b"}, {"id": 2, "day": "c"}], partition_by=["day"])
    old = {file.name for file in Path(uri).rglob("*.parquet")}
    delta_table([{"id": 3, "day": "c"}], partition_by=["day"])
    assert find_missing_file(uri, 0) is None
    table = DeltaTable(uri)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    missing = find_missing_file(uri, 0)
    assert Path(missing).name in old
    assert not Path(missing).exists()
    assert find_missing_file(uri, 1) is None


@pytest.mark.usefixtures("_way")
def test_the_file_of_a_deletion_vector_counts_too(tmp_path):
    TABLES["deletion_vectors_of_all_kinds"](tmp_path / "t")
    version = load_snapshot(str(tmp_path / "t")).version
    assert find_missing_file(str(tmp_path / "t"), version) is None
    for file in (tmp_path / "t").rglob("deletion_vector_*.bin"):
        file.unlink()
    assert find_missing_file(str(tmp_path / "t"), version).endswith(".bin")


def test_a_table_without_its_log_says_so(delta_table):
    uri = delta_table([{"id": 1}])
    shutil.rmtree(Path(uri) / "_delta_log")
    with pytest.raises(TableNotFoundError):
        find_missing_file(uri, 0)
