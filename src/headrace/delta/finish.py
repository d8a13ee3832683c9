"""The two ends of a write: its commit and what is left to remove, or its failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    _parts: list[Part] = field(default_factory=list)

    def commit(self, parts: Sequence[Part], run: Runner = one_by_one) -> int:
        """Commit what the workers wrote, then remove what earlier attempts have left.

        Files are removed after the commit only: until then an attempt that was thought dead could
        still commit them, from then on it finds the key taken.
        """
        self.version = Committer(self.plan, parts, run).commit()
        files, folder = self.plan.request.files, self.plan.folder
        actions = read_commit(files, self.version) or []
        kept = frozenset(action["add"]["path"] for action in actions if "add" in action)
        remove_files(files, folder, keep=kept)
        return self.version

    def abandon(self, error: BaseException) -> None:
        """Remove this attempt's files after a failure.

        Not when the commit is unclear: the store may still take it.
        """
        if self.version is not None or isinstance(error, CommitUnclearError):
            return
        request, attempt = self.plan.request, self.plan.rows.files.attempt
        for _ in range(_CLEANINGS):
            # A worker that is being stopped may be about to finish a file.
            if not remove_files(request.files, self.plan.folder, attempt=attempt):
                break
            time.sleep(_PAUSE_S)

    def ref(self, name: str | None) -> TableRef:
        """The version that the write made, noted in the task's context."""
        request = self.plan.request
        return committed_ref(request, self.version, name)


def committed_ref(request: WriteRequest, version: int | None, name: str | None) -> TableRef:
    """The reference to a version that a write made; the write is noted in the task's context."""
    snapshot = load_snapshot(request.files.uri, version=version, storage=request.files.storage)
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
    return committed_ref(request, version, name)
