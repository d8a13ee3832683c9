"""One call of per-group training, from the plan to what came of each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.exceptions import MlRequestError, WorkersLostError
from headrace.ml.group_desk import Desk, Job
from headrace.ml.group_plan import Group, OnLarge, Plan, sample_rows
from headrace.ml.group_source import Groups

# Each costs two jobs; a table of which so many kill their workers needs another profile.
_MOST_KILLED: Final = 20


@dataclass
class Training:
    """Trains the groups of a plan.

    Attributes:
        engine: Where the rows are.
        desk: Where workers report.
        on_large: What becomes of groups that don't fit.
        budget_mib: Memory of one worker.
        cores: Threads for a group that has all to itself.
        seed: Of samples.
        samples: Rows that were sampled of a group, by its number.
    """

    engine: Groups
    desk: Desk
    on_large: OnLarge
    budget_mib: float
    cores: int
    seed: int
    samples: dict[int, int] = field(default_factory=dict)
    _killed: int = 0

    def run(self, groups: Sequence[Group], plan: Plan) -> None:
        """Train all of them, whatever becomes of each.

        Raises:
            WorkersLostError: Too many groups killed their workers.
            Exception: The engine's own error, when it was not a group's.
        """
        large = () if self.on_large == "leave" else plan.large
        bins = [*((group.number,) for group in large), *plan.bins]
        self.engine.place(groups, bins)
        ordinary = [number for found in plan.bins for number in found]
        self._until_done(ordinary, self._start)
        if large:
            self._train_large(large)

    def _start(self, numbers: Sequence[int]) -> Job:
        return self.engine.train(self.desk.address, numbers)

    def _train_large(self, large: Sequence[Group]) -> None:
        numbers = [group.number for group in large]
        if self.on_large == "alone":
            self.desk.threads = self.cores
            for number in numbers:
                self._until_done([number], self._start)
            return
        if self.on_large == "sample":
            self.samples = {group.number: sample_rows(group, self.budget_mib) for group in large}
        samples = self.samples if self.on_large == "sample" else None
        self._until_done(
            numbers,
            lambda left: self.engine.train_batches(self.desk.address, left, samples, self.seed),
        )

    def _until_done(self, numbers: Sequence[int], start: Callable[[Sequence[int]], Job]) -> None:
        """Train groups in one job, or in more where a worker is lost.

        A lost worker may take the whole job with it, and others' groups. What is done is kept,
        the groups that were at work then are tried alone, and the rest goes on.
        """
        left = list(numbers)
        while left:
            problem = self.desk.run(start(left))
            suspects = sorted(self.desk.suspects)
            for number in suspects:
                self._try_alone(number, start)
            count = len(left)
            left = [number for number in left if number not in self.desk.outcomes]
            if left and not suspects and problem is not None:
                raise problem
            if len(left) == count:
                raise WorkersLostError(
                    what="ml.train_per_group", lost=1, reason="a job ended without its groups"
                )

    def _try_alone(self, number: int, start: Callable[[Sequence[int]], Job]) -> None:
        self.desk.run_alone(number, start([number]))
        reason = self.desk.outcomes[number].killed
        self._killed += reason is not None
        if self._killed > _MOST_KILLED:
            raise WorkersLostError(
                what="ml.train_per_group", lost=self._killed, reason=reason or ""
            )


def check_on_large(on_large: OnLarge, *, has_fit_batches: bool) -> None:
    """Refuse what does not go together.

    Raises:
        MlRequestError: `on_large` is unknown, or `iterate` has no function for batches.
    """
    known = ("fail", "sample", "iterate", "alone", "leave")
    if on_large not in known:
        raise MlRequestError(
            problem=f"on_large={on_large!r} does not exist.",
            found=f"Known: {', '.join(known)}.",
            fix='on_large="sample"',
        )
    if (on_large == "iterate") != has_fit_batches:
        raise MlRequestError(
            problem='on_large="iterate" and fit_batches belong together.',
            found="fit gets all rows of a group at once; fit_batches gets an iterator of frames.",
            fix='on_large="iterate", fit_batches=fit_in_parts',
        )
