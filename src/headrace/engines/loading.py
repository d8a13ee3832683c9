"""Find a task's function in the attempt's process, by its module's name or by its file."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.engines.spec import AttemptSpec
from headrace.engines.stand_in import install_stand_ins
from headrace.exceptions import TaskImportError


def load_function(spec: AttemptSpec) -> Callable[..., Any]:
    """Import the task's module and take the user's function out of it.

    Raises:
        TaskImportError: The module or the function isn't there. An error that the module itself
            raises when it is imported passes through.
    """
    install_stand_ins()
    hiding = _hiding_files(spec.root)
    if hiding and spec.kind == "ray":
        # Ray puts the working folder in front of everything that its workers import.
        raise _error(spec, f"{hiding[0]} hides the installed package of that name; rename it.")
    add_root(spec.root, for_workers=not hiding)
    module = _by_name(spec) or _by_file(spec)
    found: Any = module
    for part in spec.function.name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise _error(spec, f"The module has no {spec.function.name!r} at its top level.")
    function = getattr(found, "function", found)
    if not callable(function):
        raise _error(spec, f"{spec.function.name!r} is a {type(found).__name__}, not a function.")
    return function  # type: ignore[no-any-return]


def add_root(root: Path, *, for_workers: bool) -> None:
    """Let modules of the project be imported here and in the engine's workers.

    The root comes last: a file in it that is named like an installed package must not take that
    package's place, for headrace and the engines use some themselves.
    """
    if str(root) not in sys.path:
        sys.path.append(str(root))
    known = os.environ.get("PYTHONPATH")
    if for_workers:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), known] if known else [str(root)])


def _hiding_files(root: Path) -> list[Path]:
    """Files right in the project's root that are named like an installed module."""
    return [path for path in root.glob("*.py") if _found_elsewhere(path.stem, root)]


def _found_elsewhere(name: str, root: Path) -> bool:
    if name in sys.modules:
        spec = sys.modules[name].__spec__
    else:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
    return bool(spec and spec.origin and Path(spec.origin).parent != root)


def _by_name(spec: AttemptSpec) -> ModuleType | None:
    """The module of that name, if it is the very file that the flow's process means."""
    name = spec.function.module
    if name == "__main__":
        name = _dotted_name(spec.root, spec.function.file)
        if not name:
            return None
    top = name.partition(".")[0]
    first = (spec.root / top).is_dir() and top not in sys.modules
    if first:
        # A package of the project wins over an installed one, as it did in the flow's process.
        sys.path.insert(0, str(spec.root))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return None
    finally:
        if first:
            sys.path.remove(str(spec.root))
    return module if _is_file(module, spec.function.file) else None


def _dotted_name(root: Path, file: Path) -> str:
    """The name under which a script of the project can be imported, or an empty text."""
    if not file.is_relative_to(root):
        return ""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def _is_file(module: ModuleType, file: Path) -> bool:
    return module.__file__ is not None and Path(module.__file__).resolve() == file.resolve()


def _by_file(spec: AttemptSpec) -> ModuleType:
    file = spec.function.file
    # The name must be another than `__main__`, whose code under `if __name__ ...` must not run.
    name = f"headrace_task_{file.stem}"
    module_spec = importlib.util.spec_from_file_location(name, file)
    if module_spec is None or module_spec.loader is None or not file.is_file():
        raise _error(spec, f"There is no module of that name below {spec.root}, and no such file.")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    module_spec.loader.exec_module(module)
    _pickle_by_value(module, spec.kind)
    return module


def _pickle_by_value(module: ModuleType, kind: str) -> None:
    """Workers can't import a module by a name that was made up here, so they are sent its code."""
    if kind == "ray":
        from ray import cloudpickle
    elif kind == "spark":
        from pyspark import cloudpickle
    else:
        return
    cloudpickle.register_pickle_by_value(module)


def _error(spec: AttemptSpec, reason: str) -> TaskImportError:
    return TaskImportError(
        task=spec.task,
        module=spec.function.module,
        file=str(spec.function.file),
        reason=reason,
    )
