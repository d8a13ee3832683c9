"""Many models in one folder: a file of models, an index by group, and what they were made from."""

from __future__ import annotations

import json
import os
import pickle
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

MODELS: Final = "models.bin"
INDEX: Final = "groups.parquet"
FACTS: Final = "facts.json"
PREDICT: Final = "predict.pkl"

# Loaded models are kept up to this many bytes of their file.
_KEPT_BYTES: Final = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model of a pack.

    Attributes:
        offset: Where it starts in the file of models, in bytes.
        length: Its bytes.
        fingerprint: Of the rows that it was trained on.
        rows: Rows of the group.
        module: Module of the model's class.
    """

    offset: int
    length: int
    fingerprint: str
    rows: int
    module: str


class PackWriter:
    """Writes models one after the other.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = (folder / MODELS).open("wb")
        self._at = 0

    def add(self, model: bytes) -> tuple[int, int]:
        """Append a model; where it lies."""
        place = self._at, len(model)
        self._file.write(model)
        self._at += len(model)
        return place

    def finish(
        self,
        entries: dict[tuple[Any, ...], Entry],
        kinds: list[pa.DataType],
        facts: dict[str, Any],
        predict: Any,
    ) -> None:
        """Write index and facts.

        Args:
            entries: By key.
            kinds: Arrow types of the key's values.
            facts: JSON values; `by` and `features` are needed for predictions.
            predict: Function of model and frame, or None.
        """
        import cloudpickle

        self.close()
        columns: dict[str, Any] = {
            f"key_{place}": pa.array([key[place] for key in entries], kind)
            for place, kind in enumerate(kinds)
        }
        for name, kind in (
            ("offset", pa.int64()), ("length", pa.int64()), ("fingerprint", pa.string()),
            ("rows", pa.int64()), ("module", pa.string()),
        ):  # fmt: skip
            columns[name] = pa.array([getattr(entry, name) for entry in entries.values()], kind)
        pq.write_table(pa.table(columns), self.folder / INDEX)
        (self.folder / FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True))
        (self.folder / PREDICT).write_bytes(cloudpickle.dumps(predict))

    def close(self) -> None:
        """Close the file of models."""
        self._file.close()


@dataclass
class Pack:
    """A pack that is there; models are loaded when they are asked for, and some are kept.

    Attributes:
        folder: Where it lies.
        facts: What `PackWriter.finish` was given.
        entries: By key.
    """

    folder: Path
    facts: dict[str, Any]
    entries: dict[tuple[Any, ...], Entry]
    _file: Any = field(default=None, repr=False)
    _kept: OrderedDict[tuple[Any, ...], Any] = field(default_factory=OrderedDict, repr=False)
    _kept_bytes: int = 0

    def read(self, key: tuple[Any, ...]) -> bytes:
        """A group's model as bytes."""
        if self._file is None:
            self._file = (self.folder / MODELS).open("rb")
        entry = self.entries[key]
        return os.pread(self._file.fileno(), entry.length, entry.offset)

    def load(self, key: tuple[Any, ...]) -> Any:
        """A group's model."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        model = pickle.loads(self.read(key))  # noqa: S301 - a model is code, as everywhere
        self._kept[key] = model
        self._kept_bytes += self.entries[key].length
        while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
            oldest, _ = self._kept.popitem(last=False)
            self._kept_bytes -= self.entries[oldest].length
        return model

    def load_predict(self) -> Any:
        """The function that predicts with a model, or None for the default."""
        return pickle.loads((self.folder / PREDICT).read_bytes())  # noqa: S301

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None, "_kept": OrderedDict(), "_kept_bytes": 0}


def open_pack(folder: Path) -> Pack:
    """Open a pack; only its index is read."""
    index = pq.read_table(folder / INDEX)
    keys = [name for name in index.column_names if name.startswith("key_")]
    entries = {
        tuple(row[name] for name in keys): Entry(
            offset=row["offset"],
            length=row["length"],
            fingerprint=row["fingerprint"],
            rows=row["rows"],
            module=row["module"],
        )
        for row in index.to_pylist()
    }
    return Pack(folder, json.loads((folder / FACTS).read_text()), entries)
