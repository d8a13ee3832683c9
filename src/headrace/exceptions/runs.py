"""Errors about runs, their repairs, and the ledger that keeps them."""

from __future__ import annotations

from headrace.exceptions.base import DataError, EngineError, HeadraceError, UserError, lines


class LedgerAddressError(UserError):
    """The ledger's address is neither an SQLite file nor a PostgreSQL database."""

    found: str

    def describe(self) -> str:
        return lines(
            f"The ledger can't live at this address: {self.found}.",
            "It lives in an SQLite file or in a PostgreSQL database.",
            'ledger_url = "sqlite:///.headrace/ledger.db", or "postgresql://user@host/headrace"',
        )


class LedgerTooNewError(UserError):
    """The ledger was written by a newer headrace."""

    address: str
    revision: str
    known: str

    def describe(self) -> str:
        return lines(
            f"The ledger {self.address} was written by a newer headrace (schema {self.revision}).",
            f"This headrace knows schemas up to {self.known}.",
            "pip install --upgrade headrace",
        )


class LedgerUnavailableError(EngineError):
    """The ledger stayed locked or gone for longer than an operation waits."""

    address: str
    waited_s: float
    cause: str

    def describe(self) -> str:
        return lines(
            f"The ledger {self.address} can't be used: {self.cause}.",
            f"It was tried for {self.waited_s:g} s.",
            "free some space on its disk" if "disk" in self.cause.lower() else "headrace doctor",
        )


class LeaseLostError(EngineError):
    """The holder's lease is over and somebody acted on it; what it did later doesn't count.

    Attributes:
        holder: `attempt 2 of train in run ...`, or `repair 1 of run ...`.
        state: What the ledger says of it now.
    """

    holder: str
    state: str

    def describe(self) -> str:
        return lines(
            f"The lease of {self.holder} was lost.",
            f"The ledger has it as {self.state}, and its late result is refused.",
            "stop this process; `headrace repair` runs the task again",
        )


class SlotsFullError(EngineError):
    """Every slot of a limit is taken by a live attempt or run."""

    limit: str
    taken: int
    most: int

    def describe(self) -> str:
        return lines(
            f"No free slot in {self.limit!r}.",
            f"{self.taken} of {self.most} are taken.",
            "wait, or raise the limit",
        )


class RunNotFoundError(UserError):
    """No run, or more than one, has the id or the beginning of an id that was given."""

    run: str
    near: list[str]
    several: bool

    def describe(self) -> str:
        several = self.several
        if not self.near:
            return lines("There are no runs yet.", fix="headrace run MODULE.FLOW")
        return lines(
            f"{'More than one run fits' if several else 'There is no run'} {self.run!r}.",
            f"{'They are' if several else 'Latest'}: {', '.join(self.near) or 'none'}.",
            "headrace runs list",
        )


class RunBusyError(UserError):
    """The run is still at work, or may be: a lease is live.

    Attributes:
        run_id: The run.
        holders: Who holds the leases.
        wait_s: After so many seconds without a heartbeat they are over.
    """

    run_id: str
    holders: list[str]
    wait_s: float

    def describe(self) -> str:
        return lines(
            f"Run {self.run_id} is still at work.",
            f"Alive: {', '.join(self.holders)}.",
            f"headrace cancel {self.run_id}, or wait: if nothing is alive any more, "
            f"that shows within {self.wait_s:.0f} s",
        )


class RepairConflictError(UserError):
    """Somebody else repaired the run first."""

    run_id: str
    seq: int
    user: str
    state: str

    def describe(self) -> str:
        return lines(
            f"Run {self.run_id} is being repaired by somebody else, or was a moment ago.",
            f"Repair {self.seq} of {self.user or 'an unknown user'} is {self.state}.",
            f"headrace runs show {self.run_id}",
        )


class NothingToRepairError(UserError):
    """A green run has nothing to run again."""

    run_id: str
    tasks: list[str]

    def describe(self) -> str:
        return lines(
            f"Run {self.run_id} is green: there is nothing to repair.",
            f"Succeeded: {', '.join(self.tasks) or 'no task was needed'}.",
            f"headrace repair {self.run_id} --task NAME --with-dependents  (to run some again)",
        )


class ReusedTableGoneError(DataError):
    """A repair would read a table version of a reused task, and that version is gone.

    Attributes:
        run_id: The run.
        task: The task that would read it.
        maker: The task that made it and would be reused.
        table: Address of the table.
        version: The version.
        problem: What is missing.
    """

    run_id: str
    task: str
    maker: str
    table: str
    version: int
    problem: str

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r} can't run again: it would read version {self.version} of "
            f"{self.table}, and {self.problem}.",
            f"Task {self.maker!r} made that version; VACUUM removes the files of old versions. "
            "Nothing has run.",
            f"headrace repair {self.run_id} --task {self.maker} --with-dependents",
        )


class RunFailedError(HeadraceError):
    """A pipeline's function returned although a task had not succeeded."""

    run_id: str
    state: str
    problem: str

    def describe(self) -> str:
        return lines(
            f"Run {self.run_id} ended as {self.state}: {self.problem}.",
            "A run is green only if everything in it ran or was excluded.",
            f"headrace runs show {self.run_id}",
        )
