"""`@pipeline`: a Prefect flow whose runs the ledger and MLflow know."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Collection
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from prefect import Flow
from prefect.context import FlowRunContext
from prefect.types.entrypoint import EntrypointType

from headrace.exceptions import ParameterError, TaskDefinitionError, closest
from headrace.orchestration.code_version import module_file
from headrace.orchestration.runner import SlotTaskRunner
from headrace.triggers.model import TriggerPolicy
from headrace.triggers.policy import OPTIONS, make_policy

log = logging.getLogger("headrace.run")

P = ParamSpec("P")
R = TypeVar("R")


class Pipeline(Flow[P, R], Generic[P, R]):
    """A Prefect flow of engine tasks.

    Everything that a Prefect user knows works: parameters with types, `.serve`, deployments, hooks,
    retries. A call finds or starts a Prefect server first.

    Attributes:
        function: The function that was decorated.
        policy: When it runs by itself, and whom that is told to.
    """

    function: Callable[..., Any]
    policy: TriggerPolicy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the pipeline in this process."""
        if FlowRunContext.get() is None:
            self._find_server()
        return super().__call__(*args, **kwargs)

    def with_options(self, **options: Any) -> Pipeline[P, R]:
        """A copy with other options: Prefect's, and those about triggers."""
        own = {name: options.pop(name) for name in OPTIONS if name in options}
        plain = super().with_options(**options)
        known = {name: getattr(self.policy, name) for name in OPTIONS}
        policy = make_policy(self.function, plain.name, {**known, **own})
        return _as_pipeline(plain, self.function, policy)

    def serve(self, *args: Any, **options: Any) -> None:
        """Serve the pipeline as Prefect does, deployed by module path."""
        self._find_server()
        options.setdefault("entrypoint_type", self._entrypoint_type())
        super().serve(*args, **options)

    def to_deployment(self, *args: Any, **options: Any) -> Any:
        """A deployment as Prefect makes it, by module path.

        A deployment by file path loads the file under its bare name, so that a flow in `yaml.py`
        would stand in for the library of that name.
        """
        options.setdefault("entrypoint_type", self._entrypoint_type())
        return super().to_deployment(*args, **options)

    @property
    def entrypoint(self) -> str:
        """`module.function`, as on the command line."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def source_file(self) -> Path | None:
        """The file that the pipeline stands in."""
        return module_file(self.function.__module__)

    def check_parameters(
        self, given: dict[str, Any], *, inherited: Collection[str] = ()
    ) -> dict[str, Any]:
        """Check names and types of parameters, and give them with their types.

        Args:
            given: Parameters as JSON values, or as strings from the command line.
            inherited: Names of those that come from an earlier run. One that the code no longer
                has is left out, and that is logged.

        Raises:
            ParameterError: A name is unknown, a value is missing or has the wrong type.
        """
        known = inspect.signature(self.fn).parameters
        for name in sorted({*inherited} & given.keys() - known.keys()):
            log.warning(
                "%s no longer has the parameter %r; %r is left out", self.name, name, given[name]
            )
            given = {other: value for other, value in given.items() if other != name}
        for name in given:
            if name not in known:
                near = closest(name, known)
                raise ParameterError(
                    pipeline=self.name,
                    problem=f"it has no parameter {name!r}",
                    found=f"Parameters: {', '.join(known) or 'none'}.",
                    fix=f"use {near}" if near else "leave it out",
                )
        missing = [
            name
            for name, parameter in known.items()
            if parameter.default is parameter.empty and name not in given
        ]
        if missing:
            raise ParameterError(
                pipeline=self.name,
                problem=f"parameter {missing[0]!r} has no value",
                found=f"Parameters: {', '.join(known)}.",
                fix=f"--param {missing[0]}=VALUE",
            )
        return self._typed(given)

    def _typed(self, given: dict[str, Any]) -> dict[str, Any]:
        from prefect.exceptions import ParameterTypeError

        # Prefect prints its own account of the same, as one long line.
        logger = logging.getLogger("prefect.flows")
        level = logger.level
        logger.setLevel(logging.CRITICAL + 1)
        try:
            return self.validate_parameters(given)
        except ParameterTypeError as error:
            text = str(error).removeprefix("Flow run received invalid parameters:")
            problem = " ".join(text.split()).removeprefix("- ")
            raise ParameterError(
                pipeline=self.name,
                problem=f"a parameter has the wrong type: {problem}",
                found=f"Signature: {self.name}{inspect.signature(self.function)}",
                fix="give a value of that type",
            ) from error
        finally:
            logger.setLevel(level)

    def _entrypoint_type(self) -> EntrypointType:
        by_module = self.function.__module__ != "__main__"
        return EntrypointType.MODULE_PATH if by_module else EntrypointType.FILE_PATH

    def _find_server(self) -> None:
        from headrace.orchestration.lifecycle import open_project

        open_project(self).ensure_prefect()


@overload
def pipeline(function: Callable[P, R], /) -> Pipeline[P, R]: ...
@overload
def pipeline(**options: Any) -> Callable[[Callable[P, R]], Pipeline[P, R]]: ...
def pipeline(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a pipeline: a Prefect flow with a run in the ledger and in MLflow.

    The function calls tasks and passes on what they return. It does no engine work of its own.

    Args:
        function: The function, when the decorator is used without parentheses.
        **options: `triggers` (what `headrace serve` starts it for: `cron`, `interval`, `on_table`,
            `on_files`, `continuous`, `on_pipeline`), `max_concurrent` (1), `when_busy` (`"skip"` or
            `"queue"`), `catch_up` (`"last"`, `"all"` or `"none"`), `notify` (Prefect blocks that
            are told of failures), `long_after_s`; and every option of Prefect's `@flow` (`name`,
            `retries`, `timeout_seconds`, ...). `name` is the function's name by default.

    Raises:
        TaskDefinitionError: The function is a generator.
        TriggerDefinitionError: A trigger, or an option about triggers, can't mean anything.

    Example:
        >>> from headrace import pipeline
        >>> @pipeline
        ... def nightly(day: str = "2013-01-01") -> None:
        ...     ...
        >>> nightly.name
        'nightly'
    """
    if function is None:
        return functools.partial(_make_pipeline, options=options)
    return _make_pipeline(function, options=options)


def _make_pipeline(function: Callable[..., Any], *, options: dict[str, Any]) -> Pipeline[Any, Any]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TaskDefinitionError(
            task=function.__name__,
            problem="is a generator",
            found="A pipeline runs to its end and returns once.",
            fix="collect what it yields and return it",
        )
    options = dict(options)
    options.setdefault("name", function.__name__)
    options.setdefault("task_runner", SlotTaskRunner())
    own = {name: options.pop(name) for name in OPTIONS if name in options}
    policy = make_policy(function, options["name"], own)
    plain: Flow[Any, Any] = Flow(_runner(function), **options)
    return _as_pipeline(plain, function, policy)


def _as_pipeline(
    plain: Flow[Any, Any], function: Callable[..., Any], policy: TriggerPolicy
) -> Pipeline[Any, Any]:
    """Turn a flow that Prefect built into ours; Prefect's `with_options` names its own class."""
    plain.__class__ = Pipeline
    made = cast("Pipeline[Any, Any]", plain)
    made.function = function
    made.policy = policy
    return made


def _runner(function: Callable[..., Any]) -> Callable[..., Any]:
    """What Prefect runs: the function inside a session."""
    signature = inspect.signature(function)

    @contextmanager
    def session(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from headrace.orchestration.lifecycle import open_session

        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        context = FlowRunContext.get()
        flow = cast("Pipeline[Any, Any]", context.flow) if context else None
        if flow is None or context is None or context.flow_run is None:
            # `flow.fn(...)`: the plain function, as Prefect's own flows give it.
            yield
            return
        with open_session(flow, dict(bound.arguments), context.flow_run):
            yield

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            with session(args, kwargs):
                return await function(*args, **kwargs)

        return run_async

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with session(args, kwargs):
            return function(*args, **kwargs)

    return run
