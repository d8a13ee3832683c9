"""A worker of `ml.tune`: it connects to the driver, gets trials one by one, and runs them.

The same code runs in a local process, in a Spark task and in a Ray task. It needs no Optuna: the
study is the driver's, and a trial here asks it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.ml.layers import inside
from headrace.ml.threads import thread_caps
from headrace.ml.wire import Address

# An idle worker reads that there is no more work, and ends by itself.
_LAST_WORDS_S = 1.0


class DriverGoneError(BaseException):
    """The driver has hung up: the trial's work is not wanted any more.

    Not an `Exception`, so that an objective that catches those ends all the same.
    """


class RemoteStudy:
    """What a trial may do to its study: `trial.study.stop()`."""

    def __init__(self, trial: RemoteTrial) -> None:
        self._trial = trial

    def stop(self) -> None:
        """Start no more trials; those that run are finished."""
        self._trial.tell_driver("stop")


class RemoteTrial:
    """A trial as an objective sees it, with the methods of `optuna.Trial`.

    Attributes:
        number: The trial's number in the study, from 0.
        params: Parameters that it has so far, by name.
        data: What `ml.tune(data=...)` was given.
        user_attrs: What `set_user_attr` was given.
        mlflow_run_id: Its MLflow run, where runs are tracked; `mlflow.log_metric` lands there.
    """

    def __init__(
        self, line: Any, number: int, params: dict[str, Any], data: Any, mlflow_run_id: str | None
    ) -> None:
        self._line = line
        self.number = number
        self.params = dict(params)
        self.data = data
        self.user_attrs: dict[str, Any] = {}
        self.mlflow_run_id = mlflow_run_id
        self.study = RemoteStudy(self)

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number from `low` to `high`."""
        return float(self._suggest("float", name, low, high, step=step, log=log))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """A whole number from `low` to `high`, both included."""
        return int(self._suggest("int", name, low, high, step=step, log=log))

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """One of the choices."""
        return self._suggest("categorical", name, list(choices))

    def report(self, value: float, step: int) -> None:
        """Tell how far the trial has come; pruning compares it with other trials' values."""
        self.tell_driver("report", float(value), int(step))

    def should_prune(self) -> bool:
        """Whether the study's pruner would end the trial now; then raise `optuna.TrialPruned`."""
        return bool(self._ask("prune?"))

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep a JSON value with the trial."""
        self.user_attrs[key] = value
        self.tell_driver("attr", key, value)

    def tell_driver(self, *message: Any) -> None:
        """Send a message that has no answer."""
        try:
            self._line.send(message)
        except (OSError, EOFError) as error:
            raise DriverGoneError from error

    def _suggest(self, kind: str, name: str, *args: Any, **options: Any) -> Any:
        if name not in self.params:
            self.params[name] = self._ask("suggest", kind, name, args, options)
        return self.params[name]

    def _ask(self, *message: Any) -> Any:
        self.tell_driver(*message)
        try:
            kind, value = self._line.recv()
        except (OSError, EOFError) as error:
            raise DriverGoneError from error
        if kind == "error":
            raise value
        return value


def work(address: Address, slot: int, load_data: Callable[[], Any] | None = None) -> int:
    """Connect to a driver and run its trials until it has no more.

    Args:
        address: The driver's.
        slot: Which of its workers this is.
        load_data: Gives the data that an engine has brought here; None for what the driver sends.

    Returns:
        How many trials were run.
    """
    line, finished = address.connect(), _end_with_the_driver(address, slot)
    done = 0
    with contextlib.suppress(DriverGoneError, EOFError, OSError):
        line.send(("hello", slot, os.getpid()))
        job = line.recv()
        objective, threads, variables = pickle.loads(job["objective"]), job["threads"], job["env"]  # noqa: S301
        data = load_data() if load_data else _unpickled(job["data"])
        with thread_caps(threads), use_environment(variables), inside("tuning trial"):
            while True:
                message = line.recv()
                if message is None:
                    break
                run_objective(line, objective, data, message)
                done += 1
    finished.set()
    with contextlib.suppress(OSError):
        line.close()
    return done


def _end_with_the_driver(address: Address, slot: int) -> threading.Event:
    """End this process when the driver hangs up in the middle of a trial, whatever it does.

    An engine that cancels a task may take its time to kill a worker that is at work.

    Returns:
        To be set when the work is done: the process stays, for other tasks of its engine.
    """
    finished = threading.Event()
    line = address.connect()
    line.send(("watch", slot))

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            line.recv()
        if not finished.wait(_LAST_WORDS_S):
            os._exit(1)

    threading.Thread(target=watch, name="headrace-ml-watch", daemon=True).start()
    return finished


def run_objective(
    line: Any, objective: Callable[[Any], Any], data: Any, message: dict[str, Any]
) -> None:
    """Run one trial, and say on its line how it ended."""
    trial = RemoteTrial(line, message["number"], message["params"], data, message["mlflow_run_id"])
    with _mlflow_run(trial.mlflow_run_id):
        try:
            value, state, error = objective(trial), "complete", None
        except Exception as problem:  # noqa: BLE001 - whatever the user's code raises
            value, error = None, None
            state = "pruned" if _is_pruned(problem) else "fail"
            if state == "fail":
                error = describe(problem)
    try:
        pickle.dumps(value)
    except Exception as problem:  # noqa: BLE001
        value, state, error = None, "fail", describe(problem)
    trial.tell_driver("done", state, value, error)


def _is_pruned(error: BaseException) -> bool:
    return any(kind.__name__ == "TrialPruned" for kind in type(error).__mro__)


def describe(error: BaseException) -> dict[str, Any]:
    """An error as plain values, with itself where it can travel."""
    text = "".join(traceback.format_exception(error))
    kind = type(error)
    told: dict[str, Any] = {"type": kind.__qualname__, "message": str(error), "traceback": text}
    try:
        import cloudpickle

        pickled = cloudpickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - an error that can't be rebuilt is told as a text
        told["error"] = pickled
    except Exception:  # noqa: BLE001
        told["error"] = None
    return told


@contextmanager
def _mlflow_run(run_id: str | None) -> Iterator[None]:
    """Let the objective's own `mlflow` calls land in the trial's run."""
    if run_id is None:
        yield
        return
    os.environ["MLFLOW_RUN_ID"] = run_id
    try:
        yield
    finally:
        os.environ.pop("MLFLOW_RUN_ID", None)
        if "mlflow" in sys.modules:
            import mlflow

            while mlflow.active_run() is not None:
                mlflow.end_run()


@contextmanager
def use_environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables inside the block, then put back what was."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _unpickled(content: bytes | None) -> Any:
    return None if content is None else pickle.loads(content)  # noqa: S301


def main() -> int:
    """A worker in a process of its own: where to connect stands in the first line of stdin."""
    told = json.loads(sys.stdin.buffer.readline())
    work(Address(told["host"], told["port"], bytes.fromhex(told["key"])), told["slot"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
