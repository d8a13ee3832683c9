"""Folders go, also in stores that refuse to delete one that is not empty."""

from __future__ import annotations

import pytest
from pyarrow import fs

from headrace.delta.location import delete_folder


class Strict:
    """A file system that deletes empty folders only."""

    def __init__(self):
        self.local = fs.LocalFileSystem()

    def __getattr__(self, name):
        return getattr(self.local, name)

    def delete_dir(self, path):
        if self.local.get_file_info(fs.FileSelector(path)):
            raise OSError(f"key '{path}/': Directory object not empty.")
        self.local.delete_dir(path)


@pytest.mark.parametrize("filesystem", [fs.LocalFileSystem(), Strict()], ids=["plain", "strict"])
def test_a_folder_goes_with_all_that_is_in_it(tmp_path, filesystem):
    for name in ("staged/a/_delta_log/0.json", "staged/a/part.parquet", "staged/b/c/d", "kept/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    for _ in range(2):  # the second time there is nothing to do
        delete_folder(filesystem, str(tmp_path / "staged"))
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "x").exists()


def test_what_can_not_be_deleted_is_an_error(tmp_path):
    class Denied(Strict):
        def delete_file(self, path):
            raise PermissionError(path)

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("x")
    with pytest.raises(PermissionError):
        delete_folder(Denied(), str(tmp_path / "a"))
