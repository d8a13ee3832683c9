"""The driver's end of per-group training: what came of each group, and whom a lost worker had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.exceptions import WorkersLostError
from headrace.ml.group_pack import PackWriter
from headrace.ml.wire import Address, Switchboard, send

_LOOK_S = 0.2
_DRAIN_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one group.

    Attributes:
        place: Offset and length of its model in the pack, or None when there is none.
        module: Module of the model's class.
        error: The user's own error as `describe` tells it, or None.
        killed: Why it has no result although the user's code raised nothing, or None.
        seconds: What its fit took.
    """

    place: tuple[int, int] | None = None
    module: str = ""
    error: dict[str, Any] | None = None
    killed: str | None = None
    seconds: float = 0.0


class Job(Protocol):
    """Work that an engine does in the background."""

    def alive(self) -> bool:
        """Whether it goes on."""

    def problem(self) -> BaseException | None:
        """Why it failed, in the engine's words; None when it did not."""

    def cancel(self) -> None:
        """End it, and wait for that."""


@dataclass
class Desk:
    """Hands groups to workers and takes their models.

    Attributes:
        pack: Where models are kept.
        code: The functions, pickled.
        threads: Threads that a group's fit may use.
        outcomes: By the group's number.
        suspects: Groups whose worker was lost while it had them.
    """

    host: str
    pack: PackWriter
    code: bytes
    threads: int = 1
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    suspects: set[int] = field(default_factory=set)
    _running: dict[Any, int] = field(default_factory=dict)
    _board: Switchboard = field(init=False)

    def __post_init__(self) -> None:
        self._board = Switchboard(self.host)

    @property
    def address(self) -> Address:
        """Where workers connect to."""
        return self._board.address

    def run(self, job: Job) -> BaseException | None:
        """Serve a job's workers until it ends.

        Returns:
            Why the job failed, or None.
        """
        try:
            while job.alive():
                self._serve(_LOOK_S)
            while self._serve(_DRAIN_S):
                pass
        except BaseException:
            job.cancel()
            raise
        # Whoever still had a group when its job was over is not at work any more.
        self.suspects |= set(self._running.values())
        self._running.clear()
        return job.problem()

    def run_alone(self, number: int, job: Job) -> None:
        """Serve a job that has one group; when its worker is lost again, that is the outcome.

        Raises:
            WorkersLostError: The job ended without a word about the group.
        """
        self.suspects.discard(number)
        problem = self.run(job)
        if number in self.outcomes:
            self.suspects.discard(number)
            return
        if number not in self.suspects:
            if problem is not None:
                raise problem
            raise WorkersLostError(what="ml.train_per_group", lost=1, reason="no answer came")
        self.suspects.discard(number)
        self.outcomes[number] = Outcome(killed=_reason(problem))

    def close(self) -> None:
        """Hang up on all workers."""
        self._board.close()

    def _serve(self, timeout_s: float) -> bool:
        """Answer what has come; whether there was anything."""
        any_came = False
        for line, message in self._board.messages(timeout_s):
            any_came = True
            self._handle(line, message)
        return any_came

    def _handle(self, line: Any, message: Any) -> None:
        if message is None:
            number = self._running.pop(line, None)
            if number is not None:
                self.suspects.add(number)
            return
        kind, *values = message
        if kind == "hello":
            send(line, self.code)
        elif kind == "begin":
            self._begin(line, values[0])
        elif kind == "done":
            self._running.pop(line, None)
            self._done(*values)

    def _begin(self, line: Any, number: int) -> None:
        """An engine may try a task again: no group is trained twice, and no killer again."""
        busy = number in self._running.values()
        wanted = number not in self.outcomes and number not in self.suspects and not busy
        if wanted:
            self._running[line] = number
        send(line, self.threads if wanted else 0)

    def _done(
        self,
        number: int,
        model: bytes | None,
        module: str,
        error: dict[str, Any] | None,
        seconds: float,
    ) -> None:
        place = None if model is None else self.pack.add(model)
        self.outcomes[number] = Outcome(place=place, module=module, error=error, seconds=seconds)


def _reason(problem: BaseException | None) -> str:
    """What the engine says about a worker that was lost with a group, in one line."""
    text = "" if problem is None else str(problem)
    kind = type(problem).__name__
    if kind == "OutOfMemoryError":
        return "its worker was killed because memory ran out"
    if problem is None or kind == "WorkerCrashedError" or "exited unexpectedly" in text:
        return "its worker was killed, twice, the second time with no other group"
    return f"its worker was lost: {text.strip().partition(chr(10))[0][:300] or kind}"
