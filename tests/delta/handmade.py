"""Write a Delta log by hand, for what Spark no longer writes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def schema_json(*fields) -> str:
    """A schema from (name, type) or (name, type, metadata)."""
    return json.dumps(struct(*fields))


def struct(*fields) -> dict:
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": rest[0] if rest else {}}
            for name, kind, *rest in fields
        ],
    }


def array(element) -> dict:
    return {"type": "array", "elementType": element, "containsNull": True}


def mapping(key, value) -> dict:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def mapped(number: int, physical: str) -> dict:
    return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}


class Log:
    """A table's folder and its log."""

    def __init__(self, path) -> None:
        self.path = Path(path)
        (self.path / "_delta_log").mkdir(parents=True, exist_ok=True)
        self.version = 0

    def begin(self, *fields, partitions=(), reader=1, writer=2, features=None, conf=None, more=()):
        """Commit the protocol, the metadata and some adds."""
        protocol = {"minReaderVersion": reader, "minWriterVersion": writer}
        if features is not None:
            protocol |= {"readerFeatures": list(features), "writerFeatures": list(features)}
            if reader < 3:
                del protocol["readerFeatures"]
        metadata = {
            "id": "0d3a9f6e-0000-4000-8000-000000000000",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_json(*fields),
            "partitionColumns": list(partitions),
            "configuration": conf or {},
            "createdTime": 0,
        }
        return self.commit({"protocol": protocol}, {"metaData": metadata}, *more)

    def commit(self, *actions):
        """Write one commit."""
        lines = [action if isinstance(action, str) else json.dumps(action) for action in actions]
        name = self.path / "_delta_log" / f"{self.version:020d}.json"
        name.write_text("\n".join(lines) + "\n")
        self.version += 1
        return self

    def file(self, name, data, *, path=None, partition=None, stats=None, dv=None, **options):
        """Write a data file and give its add action."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        table = data if isinstance(data, pa.Table) else pa.table(data)
        pq.write_table(table, target, **options)
        return self.add(path or name, target.stat().st_size, partition, stats, dv)

    @staticmethod
    def add(path, size=1, partition=None, stats=None, dv=None):
        action = {
            "path": path,
            "partitionValues": partition or {},
            "size": size,
            "modificationTime": 0,
            "dataChange": True,
        }
        if stats is not None:
            action["stats"] = stats if isinstance(stats, str) else json.dumps(stats)
        if dv is not None:
            action["deletionVector"] = dv
        return {"add": action}

    @staticmethod
    def remove(path, dv=None):
        action = {"path": path, "deletionTimestamp": 1, "dataChange": True}
        if dv is not None:
            action["deletionVector"] = dv
        return {"remove": action}
