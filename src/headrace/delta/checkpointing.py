"""Checkpoints, so that a table that only this library writes to stays quick to open."""

from __future__ import annotations

import logging

from headrace.delta.guards import writer_features
from headrace.delta.log import TableFiles
from headrace.delta.snapshot import Snapshot

# delta-rs writes checkpoints that are right for tables with these, and no others are asked of it.
_PLAIN = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "generatedColumns",
        "invariants",
        "timestampNtz",
    }
)
_INTERVAL = "delta.checkpointInterval"

_log = logging.getLogger(__name__)


def is_due(snapshot: Snapshot) -> bool:
    """Whether a version should have a checkpoint, and this library may write it."""
    interval = int(snapshot.configuration.get(_INTERVAL, "10"))
    plain = writer_features(snapshot.protocol) <= _PLAIN and snapshot.protocol.reader != 2  # noqa: PLR2004
    return plain and snapshot.version > 0 and snapshot.version % interval == 0


def write_checkpoint(files: TableFiles, snapshot: Snapshot) -> None:
    """Write a version's checkpoint when it is due; a failure costs time later, nothing else."""
    if not is_due(snapshot):
        return
    from deltalake import DeltaTable

    try:
        options = files.storage.fresh().delta_options()
        DeltaTable(files.uri, snapshot.version, storage_options=options).create_checkpoint()
    except Exception as error:  # noqa: BLE001 - the write is done, whatever happens here
        _log.info("no checkpoint of %s: %s", files.uri, type(error).__name__)
