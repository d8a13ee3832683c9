"""`@spark_task`, `@ray_task`, `@python_task`: Prefect tasks that run on a compute profile."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext, TaskRunContext

from headrace.context import current_context, inside_task
from headrace.exceptions import TaskDefinitionError
from headrace.ledger.conditions import CLEAN_UP
from headrace.ledger.records import RunIf
from headrace.orchestration.dependencies import tolerant
from headrace.orchestration.retries import ErrorKinds, may_retry
from headrace.orchestration.state_names import EXCLUDED, REUSED, UPSTREAM_FAILED
from headrace.orchestration.task_options import check_options, error_kinds

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["spark", "ray", "python"]

INJECTED: dict[Kind, tuple[str, ...]] = {
    "spark": ("spark", "context"),
    "ray": ("context",),
    "python": ("context",),
}
"""Parameters that headrace fills in and a caller doesn't see, by kind of task."""


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """What a decorator was told.

    Attributes:
        kind: The engine.
        profile: Name of the compute profile; None for the environment's first of that engine.
        key: Parameter (or function of the parameters) that names a for-each item; None for a task
            that is called once.
        timeout_s: Time limit of one attempt, or None for the profile's.
        run_if: When it runs, by how the tasks before it ended.
        concurrency: How many of its attempts run at once over all runs of the pipeline; None for
            as many as the machine carries.
        retry_on: Errors after which it is tried again; empty means all that may pass.
        no_retry_on: Errors after which it is not.
        retry_if: A `retry_condition_fn` as Prefect has it, on top of those.
        retry_delays: Seconds before the next try: one for all, or one for each.
    """

    kind: Kind
    profile: str | None = None
    key: str | Callable[[dict[str, Any]], str] | None = None
    timeout_s: float | None = None
    run_if: RunIf = "all_success"
    concurrency: int | None = None
    retry_on: ErrorKinds = ()
    no_retry_on: ErrorKinds = ()
    retry_if: Callable[[Any, Any, Any], bool] | None = None
    retry_delays: float | Sequence[float] | None = None

    @property
    def is_clean_up(self) -> bool:
        """Whether the task still starts after a cancel."""
        return self.run_if in CLEAN_UP


class EngineTask(Task[P, R], Generic[P, R]):
    """A Prefect task whose function runs in a child process on a compute profile.

    Inside a pipeline it behaves like any Prefect task: `.submit`, `.map`, `wait_for`, retries,
    tags. Outside one, and inside another task, a call is a plain function call.

    Attributes:
        function: The function that was decorated.
        settings: What the decorator was told.
    """

    function: Callable[..., Any]
    settings: TaskSettings

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task in a pipeline, or the plain function elsewhere."""
        if inside_task() or FlowRunContext.get() is None:
            kwargs.pop("wait_for", None)
            return call_plain(self.function, self.settings.kind, args, kwargs)
        with noting_call(self, (args, kwargs)):
            given = {name: tolerant(value) for name, value in kwargs.items()}
            result = super().__call__(*map(tolerant, args), **given)
        return result if kwargs.get("return_state") else _result_of(result)

    def with_options(self, **options: Any) -> EngineTask[P, R]:
        """A copy with other options: Prefect's, and those of headrace."""
        own = _own_options(self.function, options)
        plain = super().with_options(**options)
        return _as_engine_task(plain, self.function, replace(self.settings, **own))


def _result_of(result: Any) -> Any:
    """What a call gives: Prefect hands a state that a task returned back as it is."""
    if not isinstance(result, State):
        return result
    value: Any = getattr(result.data, "result", result.data)
    if result.name == UPSTREAM_FAILED:
        raise value
    return value if result.name in (REUSED, EXCLUDED) else result


def call_plain(
    function: Callable[..., Any], kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a task's function here, with the session and context that it asks for."""
    names = inspect.signature(function).parameters
    bound = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    for name in INJECTED[kind]:
        if name in names and name not in bound:
            kwargs[name] = current_context() if name == "context" else _active_spark(function)
    return function(*args, **kwargs)


def _active_spark(function: Callable[..., Any]) -> Any:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        name = function.__name__
        raise TaskDefinitionError(
            task=name,
            problem="is called as a plain function without a Spark session",
            found="No session is active in this process.",
            fix=f"{name}(..., spark=session), or call it inside a @pipeline",
        )
    return session


@contextmanager
def noting_call(task: EngineTask[Any, Any], arguments: object) -> Iterator[None]:
    """Note a call of a task in the pipeline's own thread, where calls have an order."""
    from headrace.orchestration.session import active_session

    session = active_session()
    if session is None:
        yield
        return
    with session.calls.calling(task.name, arguments):
        yield


@overload
def spark_task(function: Callable[P, R], /) -> EngineTask[P, R]: ...
@overload
def spark_task(**options: Any) -> Callable[[Callable[P, R]], EngineTask[P, R]]: ...
def spark_task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a task that runs on Spark.

    The function may have a parameter `spark` (the session, with Delta) and a parameter `context`
    (`TaskContext`); both are filled in and the caller doesn't pass them. It returns table
    references or small JSON.

    Args:
        function: The function, when the decorator is used without parentheses. It stands at the
            top level of a module.
        **options: `profile` (name of a Spark profile; the environment's first by default), `key`
            (name of the parameter, or function of all parameters, that names a for-each item),
            `timeout_s`, `run_if` (`all_success`, `at_least_one_success`, `none_failed`, `all_done`,
            `at_least_one_failed`, `all_failed`), `concurrency` (how many of its attempts run at
            once), `retry_on` and `no_retry_on` (classes of errors, or their names), and every
            option of Prefect's `@task` (`retries`, `tags`, `name`, ...).

    Raises:
        TaskDefinitionError: The function can't be a task.

    Example:
        >>> from headrace import spark_task, write_table
        >>> @spark_task(profile="etl", retries=1)
        ... def count_up(rows: int, spark):
        ...     return write_table(spark.range(rows), "numbers")
        >>> list(inspect.signature(count_up.fn).parameters)
        ['rows']
    """
    return _decorate("spark", function, options)


@overload
def ray_task(function: Callable[P, R], /) -> EngineTask[P, R]: ...
@overload
def ray_task(**options: Any) -> Callable[[Callable[P, R]], EngineTask[P, R]]: ...
def ray_task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a task that runs as the driver of a Ray cluster.

    Ray is connected when the function starts: `import ray` and go. A parameter `context` is filled
    in. For the options, what it returns and what it raises, see `spark_task`.
    """
    return _decorate("ray", function, options)


@overload
def python_task(function: Callable[P, R], /) -> EngineTask[P, R]: ...
@overload
def python_task(**options: Any) -> Callable[[Callable[P, R]], EngineTask[P, R]]: ...
def python_task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a task that runs in one plain Python process: pandas, polars, scikit-learn.

    For the options, what it returns and what it raises, see `spark_task`.
    """
    return _decorate("python", function, options)


def _decorate(kind: Kind, function: Callable[..., Any] | None, options: dict[str, Any]) -> Any:
    if function is None:
        return functools.partial(_make_task, kind, options=options)
    return _make_task(kind, function, options=options)


def _make_task(
    kind: Kind, function: Callable[..., Any], *, options: dict[str, Any]
) -> EngineTask[Any, Any]:
    options = dict(options)
    _check_function(function)
    settings = TaskSettings(kind=kind, **_own_options(function, options))
    options.setdefault("cache_policy", NO_CACHE)
    plain: Task[Any, Any] = Task(fn=_launcher(function, kind), **options)
    return _as_engine_task(plain, function, settings)


def _as_engine_task(
    plain: Task[Any, Any], function: Callable[..., Any], settings: TaskSettings
) -> EngineTask[Any, Any]:
    """Turn a task that Prefect built into ours; Prefect's `with_options` names its own class."""
    plain.__class__ = EngineTask
    task = cast("EngineTask[Any, Any]", plain)
    if plain.retry_delay_seconds:
        # The delay is waited for by `may_retry`, where a cancel ends it.
        settings = replace(settings, retry_delays=plain.retry_delay_seconds)
        plain.retry_delay_seconds = []
    plain.retry_condition_fn = cast("Any", may_retry)
    task.function = function
    task.settings = settings
    task.__wrapped__ = function  # type: ignore[attr-defined]
    return task


def _launcher(function: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    """What Prefect runs in the flow's process: it starts the child and waits for it."""
    signature = inspect.signature(function)
    visible = signature.replace(
        parameters=[p for name, p in signature.parameters.items() if name not in INJECTED[kind]]
    )

    @functools.wraps(function)
    def launch(*args: Any, **kwargs: Any) -> Any:
        from headrace.orchestration.run_task import run_task

        context = TaskRunContext.get()
        if context is None:
            return call_plain(function, kind, args, kwargs)
        bound = visible.bind(*args, **kwargs)
        bound.apply_defaults()
        return run_task(cast("EngineTask[Any, Any]", context.task), dict(bound.arguments))

    launch.__signature__ = visible  # type: ignore[attr-defined]
    return launch


def _check_function(function: Callable[..., Any]) -> None:
    name = getattr(function, "__name__", str(function))
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TaskDefinitionError(
            task=name,
            problem="is a coroutine or a generator",
            found="A task's function runs to its end in a process of its own and returns once.",
            fix="make it a plain `def` that returns a value",
        )
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise TaskDefinitionError(
                task=name,
                problem=f"has the positional-only parameter {parameter.name!r}",
                found="Arguments travel to the task's process by name.",
                fix="give each parameter a name",
            )


_OWN = ("profile", "key", "run_if", "concurrency", "retry_on", "no_retry_on")


def _own_options(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Take what is headrace's out of the options, checked."""
    own = {name: options.pop(name) for name in _OWN if name in options}
    check_options(function, own)
    for name in ("retry_on", "no_retry_on"):
        if name in own:
            own[name] = error_kinds(own[name])
    if "retry_condition_fn" in options:
        own["retry_if"] = options.pop("retry_condition_fn")
    if "retry_delay_seconds" in options and not options["retry_delay_seconds"]:
        own["retry_delays"] = None
    return {**own, **_timeout(options)}


def _timeout(options: dict[str, Any]) -> dict[str, Any]:
    """Take the time limit out of the options: the child is ended by us, not by Prefect's signal."""
    given = [options.pop(name) for name in ("timeout_s", "timeout_seconds") if name in options]
    return {"timeout_s": float(given[0]) if given[0] is not None else None} if given else {}


def named_tasks(function: Callable[..., Any]) -> list[EngineTask[Any, Any]]:
    """Engine tasks that a function's code names, as globals of its module."""
    code = inspect.unwrap(function).__code__
    known = inspect.unwrap(function).__globals__
    found = (known.get(name) for name in code.co_names)
    return [value for value in found if isinstance(value, EngineTask)]
