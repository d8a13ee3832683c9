"""What a task may return: small JSON and table references."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from headrace.engines.spec import tag_tables
from headrace.exceptions import ResultError
from headrace.tables import TableRef

LARGEST_RESULT: Final = 64 * 1024
_DEEPEST: Final = 50

_SPARK = "write_table(df, NAME) and return the table reference that it gives"
_ARROW = "write_arrow(data, NAME) and return the table reference that it gives"
_RAY = "to_delta(ds, NAME) and return the table reference that it gives"
_MODEL = "log and register the model with MLflow, and return its name and version"

# By the top-level package of the value's class.
_FIXES: Final = {
    "pyspark": _SPARK,
    "pandas": _ARROW,
    "polars": _ARROW,
    "pyarrow": _ARROW,
    "ray": _RAY,
    "xgboost": _MODEL,
    "sklearn": _MODEL,
    "torch": _MODEL,
    "lightgbm": _MODEL,
    "catboost": _MODEL,
    "keras": _MODEL,
    "tensorflow": _MODEL,
    "transformers": _MODEL,
    "mlflow": _MODEL,
    "datetime": "return value.isoformat()",
    "pathlib": "return str(value); what is in the file goes through a table or an artifact",
    "decimal": "return str(value) or float(value)",
}


def check_result(task: str, value: Any) -> Any:
    """Check a task's return value and make it ready for JSON.

    Args:
        task: Name of the task, for error texts.
        value: What the function returned. A tuple counts as a list.

    Returns:
        The same as JSON values, with table references marked.

    Raises:
        ResultError: It is or holds something else, NaN or infinity, or has more than 64 KiB.
    """
    _check(task, value, "", 0)
    plain = tag_tables(value)
    size = len(json.dumps(plain))
    if size > LARGEST_RESULT:
        raise _error(
            task, "", f"{size / 1024:.0f} KiB of JSON", "write a table and return its reference"
        )
    return plain


def _check(task: str, value: Any, where: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise _error(task, "", "something nested too deeply, or within itself", "return less")
    if type(value) in (list, tuple):
        for number, item in enumerate(value):
            _check(task, item, f"{where}[{number}]", depth + 1)
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise _error(task, where, f"a dict with the key {key!r}", "use texts as keys")
            _check(task, item, f"{where}[{key!r}]", depth + 1)
    else:
        _check_single(task, value, where)


def _check_single(task: str, value: Any, where: str) -> None:
    if value is None or isinstance(value, TableRef) or type(value) in (bool, int):
        return
    if isinstance(value, str):
        if not _is_text(value):
            raise _error(task, where, "a text that is not valid Unicode", "return clean text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _error(task, where, f"{float(value)}", "return None where there is no number")
    else:
        raise _error(task, where, f"a {_kind(value)}", _fix(value))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _fix(value: Any) -> str:
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return "return value.item()"
    # A class of the user's that derives from a model or a frame is one too.
    for kind in type(value).__mro__:
        fix = _FIXES.get(kind.__module__.partition(".")[0])
        if fix is not None:
            return fix
    return "write a table and return its reference, or return the few values that matter"


def _error(task: str, where: str, problem: str, fix: str) -> ResultError:
    return ResultError(task=task, where=where, problem=problem, fix=fix)
