"""Finds a pipeline by the name that a user types."""

from __future__ import annotations

import ast
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace.exceptions import FlowImportError, FlowNotFoundError, TaskNotFoundError
from headrace.orchestration.pipeline import Pipeline
from headrace.orchestration.tasks import EngineTask

FOLDER = "flows"
"""Where a project keeps its pipelines."""


def load_pipeline(name: str, *, root: Path) -> Pipeline[Any, Any]:
    """Import a pipeline of a project.

    Args:
        name: `module.function` or `module:function`. The module alone does when it defines one
            pipeline, and the function alone when it stands in `flows/`.
        root: The project's root; it is put on `sys.path`.

    Raises:
        FlowNotFoundError: No module or no pipeline of that name, or several.
    """
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    dotted = _full_name(name.strip().replace(":", ".").removesuffix(".py").replace("/", "."), root)
    module_name, _, attribute = dotted.rpartition(".")
    module = _import(module_name, root) if module_name else None
    found = getattr(module, attribute, None) if module is not None else None
    if isinstance(found, Pipeline):
        return found
    if found is not None and not hasattr(found, "__path__") and not hasattr(found, "__file__"):
        kind = type(found).__name__
        problem = f"{attribute} in {module_name} is a {kind}, not a function with @pipeline"
        raise FlowNotFoundError(name=name, problem=problem, defined=defined_pipelines(root))
    return _only_pipeline(dotted, name, root)


def defined_pipelines(root: Path) -> list[str]:
    """Pipelines in the project's `flows/`, as `flows.module.function`; nothing is imported."""
    return sorted(_scan(root / FOLDER, root))


def check_task_names(names: Iterable[str], *, pipeline: str, root: Path) -> None:
    """Refuse an option that names a task which the project's loaded modules don't have.

    Raises:
        TaskNotFoundError: No task has that name.
    """
    known = {
        value.name
        for module in tuple(sys.modules.values())
        if str(getattr(module, "__file__", None) or "").startswith(f"{root}{os.sep}")
        for value in tuple(vars(module).values())
        if isinstance(value, EngineTask)
    }
    for name in names:
        if name not in known:
            raise TaskNotFoundError(
                task=name, where=f"The project of {pipeline!r}", defined=sorted(known)
            )


def _full_name(dotted: str, root: Path) -> str:
    """Complete a function's bare name when one pipeline of the project has it."""
    if "." in dotted:
        return dotted
    fitting = [full for full in defined_pipelines(root) if full.rpartition(".")[2] == dotted]
    return fitting[0] if len(fitting) == 1 else f"{FOLDER}.{dotted}"


def _import(module: str, root: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Only the module that was asked for, or a parent of it; not one that it needs itself.
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            return None
        raise _import_error(module, error, root) from error
    except Exception as error:
        raise _import_error(module, error, root) from error


def _import_error(module: str, error: Exception, root: Path) -> FlowImportError:
    """Where in the project an import went wrong, and with what."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(f"{root}{os.sep}")]
    file, line = (own[-1].filename, own[-1].lineno) if own else (module, None)
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return FlowImportError(
        module=module,
        place=f"{file}:{line}" if line else file,
        problem=f"{type(error).__name__}: {error}",
        missing=missing,
    )


def _only_pipeline(module_name: str, name: str, root: Path) -> Pipeline[Any, Any]:
    module = _import(module_name, root)
    if module is None:
        parent, _, attribute = module_name.rpartition(".")
        exists = bool(parent) and parent in sys.modules
        problem = f"module {parent} has no {attribute}" if exists else "no such module"
        raise FlowNotFoundError(name=name, problem=problem, defined=defined_pipelines(root))
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, Pipeline) and value.function.__module__ == module.__name__
    ]
    if len(own) != 1:
        problem = f"{module_name} defines {len(own) or 'no'} pipelines"
        raise FlowNotFoundError(name=name, problem=problem, defined=defined_pipelines(root))
    return own[0]


def _scan(folder: Path, root: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        module = ".".join(file.relative_to(root).with_suffix("").parts)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                _is_pipeline(decorator) for decorator in node.decorator_list
            ):
                yield f"{module}.{node.name}"


def _is_pipeline(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", None)
    return name == "pipeline"
