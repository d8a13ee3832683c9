"""What a worker does with one group: it asks the driver, trains, and sends the model back.

The line to the driver lives as long as the process, so that the driver knows which group a worker
had when it was killed.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.ml.layers import inside
from headrace.ml.threads import thread_caps
from headrace.ml.trial_worker import describe
from headrace.ml.wire import Address


@dataclass
class _Line:
    """This process's connection to the driver of one job."""

    address: Address
    connection: Any
    fit: Callable[[Any], Any]
    fit_batches: Callable[[Any], Any] | None


_current: _Line | None = None


def train_group(
    address: Address, number: int, load: Callable[[], Any], *, streaming: bool = False
) -> bool:
    """Train one group, unless the driver has it already or does not want it tried here.

    Args:
        address: The driver's.
        number: The group's.
        load: Gives its rows: a frame, or with `streaming` an iterator of frames.
        streaming: Whether the function for batches is used.

    Returns:
        Whether it was tried.
    """
    line = _connect(address)
    line.connection.send(("begin", number))
    threads = line.connection.recv()
    if not threads:
        return False
    rows = load()
    fit = line.fit_batches if streaming and line.fit_batches else line.fit
    start = time.perf_counter()
    model, told, error = None, "", None
    with thread_caps(threads), inside("group"):
        try:
            model, told = _train(fit, rows)
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever the user's code raises
            error = describe(problem)
    seconds = time.perf_counter() - start
    line.connection.send(("done", number, model, told, error, seconds))
    return True


def _train(fit: Callable[[Any], Any], rows: Any) -> tuple[bytes, str]:
    """The model as bytes, and the module that its class comes from."""
    import cloudpickle

    model = fit(rows)
    if model is None:
        raise TypeError("fit returned None; it has to return the group's model")
    return cloudpickle.dumps(model, protocol=pickle.HIGHEST_PROTOCOL), type(model).__module__


def _connect(address: Address) -> _Line:
    global _current  # noqa: PLW0603 - one line per process
    if _current is None or _current.address != address:
        if _current is not None:
            _current.connection.close()
        connection = address.connect()
        connection.send(("hello",))
        fit, batches = pickle.loads(connection.recv())  # noqa: S301 - from our driver
        _current = _Line(address, connection, fit, batches)
    return _current
