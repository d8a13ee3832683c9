"""Prefect's thread pool, noting the order in which a pipeline calls its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefect.task_runners import ThreadPoolTaskRunner

from headrace.orchestration.dependencies import tolerant
from headrace.orchestration.held_signals import putting_off_signals
from headrace.orchestration.tasks import EngineTask, noting_call

if TYPE_CHECKING:
    from prefect.futures import PrefectConcurrentFuture


class SlotTaskRunner(ThreadPoolTaskRunner):  # type: ignore[type-arg]
    """Runs submitted and mapped tasks in threads that wait for their child processes.

    The place of a call is counted here, in the flow's own thread, since the threads start in any
    order: a repair finds an item without a key by that place.
    """

    def submit(
        self,
        task: Any,
        parameters: dict[str, Any],
        wait_for: Any = None,
        dependencies: Any = None,
    ) -> PrefectConcurrentFuture[Any]:
        """Submit a task, and let the session wait for it before the run ends."""
        if not isinstance(task, EngineTask):
            return super().submit(task, parameters, wait_for, dependencies)
        from headrace.orchestration.session import active_session

        session = active_session()
        # A TERM in between must not leave a task that runs and that nobody waits for.
        with putting_off_signals(), noting_call(task, (parameters, wait_for)):
            future: PrefectConcurrentFuture[Any] = super().submit(
                task,
                {name: tolerant(value) for name, value in parameters.items()},
                tolerant(wait_for),
                dependencies,
            )
            if session is not None:
                session.submitted.append((task, future))
        return future
