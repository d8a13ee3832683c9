"""The two ends of a write: its commit and what is left to remove, or its failure."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.delta.checkpointing import write_checkpoint
from headrace.delta.commit import Committer
from headrace.delta.log import read_commit
from headrace.delta.snapshot import load_snapshot
from headrace.delta.transaction import find_commit
from headrace.delta.write_files import remove_files
from headrace.delta.write_modes import Runner, one_by_one
from headrace.delta.write_plan import WritePlan, WriteRequest, plan_write
from headrace.delta.write_rows import Part
from headrace.exceptions import CommitUnclearError
from headrace.tables import TableRef

_CLEANINGS = 5
_PAUSE_S = 0.3


@dataclass
class Write:
    """One write from its plan to its end, on the driver.

    Attributes:
        plan: What is done.
        version: The version it made, once it has.
    """

    plan: WritePlan
    version: int | None = None

    def commit(self, parts: Sequence[Part], run: Runner = one_by_one) -> int:
        """Commit what the workers wrote, then remove what earlier attempts have left.

        Files are removed after the commit only: until then an attempt that was thought dead could
        still commit them, from then on it finds the key taken.
        """
        self.version = Committer(self.plan, parts, run).commit()
        remove_orphans(self.plan.request, self.version)
        return self.version

    def abandon(self, error: BaseException) -> None:
        """Remove this attempt's files after a failure, unless its commit may be in the log."""
        if self.version is not None or isinstance(error, CommitUnclearError):
            return
        request, attempt = self.plan.request, self.plan.rows.files.attempt
        with contextlib.suppress(OSError):
            # An interrupt may have come right after the commit.
            if find_commit(request.files, request.key) is not None:
                return
            for _ in range(_CLEANINGS):
                # A worker that is being stopped may be about to finish a file.
                if not remove_files(request.files, self.plan.folder, attempt=attempt):
                    return
                time.sleep(_PAUSE_S)


def remove_orphans(request: WriteRequest, version: int) -> None:
    """Remove what attempts of a write have left beside the files that its commit has."""
    try:
        actions = read_commit(request.files, version) or []
        kept = frozenset(action["add"]["path"] for action in actions if "add" in action)
        remove_files(request.files, request.key.file_prefix, keep=kept)
    except OSError:
        # The write is done; files that nobody refers to wait for VACUUM.
        request.context.logger.warning("orphans of %s were not removed", request.table)


def committed_ref(request: WriteRequest, version: int | None, name: str | None) -> TableRef:
    """The reference to a version that a write made; the write is noted in the task's context."""
    snapshot = load_snapshot(request.files.uri, version=version, storage=request.files.storage)
    write_checkpoint(request.files, snapshot)
    ref = snapshot.ref(name=name)
    request.context.record_write(ref, request.mode)
    return ref


def write_once(
    request: WriteRequest, name: str | None, write: Callable[[WritePlan], Write]
) -> TableRef:
    """Run a write unless its key is in the log already.

    Args:
        request: The write.
        name: The table's short name.
        write: Does it, from the plan to the commit.

    Returns:
        The version that the write, or an earlier attempt of it, made.
    """
    version = find_commit(request.files, request.key) if request.key.parts else None
    if version is None:
        version = write(plan_write(request)).version
    else:
        remove_orphans(request, version)
    return committed_ref(request, version, name)
