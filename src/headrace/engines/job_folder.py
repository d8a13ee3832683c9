"""What passes between an attempt's process and its job on a cluster, as objects beside the lake.

LAKE/_headrace/jobs/ID/spec.json      what to run; it holds no secret
LAKE/_headrace/jobs/ID/result.json    what came of it, written as the last thing
LAKE/_headrace/jobs/ID/files/         files that the task attached
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from headrace.profiles.storage import Storage

_FOLDER: Final = "_headrace/jobs"


class JobFolder:
    """The objects of one job.

    Args:
        lake: Address of the lake.
        job: The job's id.
        storage: Its credentials and endpoint, as they are here.
    """

    def __init__(self, lake: str, job: str, storage: Storage) -> None:
        from pyarrow import fs

        self.uri = f"{lake.rstrip('/')}/{_FOLDER}/{job}"
        remote = lake.startswith("s3://")
        self._files = storage.fresh().filesystem() if remote else fs.LocalFileSystem()
        self._path = self.uri.removeprefix("s3://")

    def write(self, name: str, value: Any) -> None:
        """Write one object as JSON; a reader sees all of it or none."""
        self._put(name, json.dumps(value).encode())

    def read(self, name: str) -> Any:
        """The value of an object; None when it isn't there."""
        content = self._get(name)
        return None if content is None else json.loads(content)

    def put_file(self, path: Path, number: int) -> str:
        """Store a file; the name that `fetch_file` knows it by."""
        name = f"files/{number}/{path.name}"
        self._put(name, path.read_bytes())
        return name

    def fetch_file(self, name: str, folder: Path) -> Path:
        """Get a file that `put_file` has stored."""
        target = folder / Path(*PurePosixPath(name).parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self._get(name) or b"")
        return target

    def remove(self) -> None:
        """Remove all of it."""
        from pyarrow import fs

        if self._files.get_file_info(self._path).type != fs.FileType.NotFound:
            self._files.delete_dir(self._path)

    def _put(self, name: str, content: bytes) -> None:
        path = f"{self._path}/{name}"
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        draft = path if self.uri.startswith("s3://") else f"{path}.part"
        with self._files.open_output_stream(draft) as stream:
            stream.write(content)
        if draft != path:
            self._files.move(draft, path)

    def _get(self, name: str) -> bytes | None:
        try:
            with self._files.open_input_stream(f"{self._path}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None


def attached_files(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The attachments of a result that are files."""
    return (item for item in result.get("attachments", ()) if item.get("path"))
