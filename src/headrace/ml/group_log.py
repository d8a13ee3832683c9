"""All groups in MLflow: one run, one model, a number of calls that doesn't grow with the groups."""

from __future__ import annotations

import contextlib
import inspect
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.delta.schema import Primitive
from headrace.ml.group_pack import Pack, open_pack
from headrace.ml.group_source import Source

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

_REQUIRED = ("mlflow", "cloudpickle", "numpy", "pandas", "pyarrow")
_TYPES = {
    "string": "string",
    "long": "long",
    "integer": "integer",
    "short": "integer",
    "byte": "integer",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "date": "datetime",
    "timestamp": "datetime",
    "timestamp_ntz": "datetime",
    "binary": "binary",
}
_WHOLE = ("long", "integer")


def run_of_models(name: str) -> AbstractContextManager[Any]:
    """The active run of MLflow, or one of its own where there is none."""
    import mlflow

    active = mlflow.active_run()
    return contextlib.nullcontext(active) if active else mlflow.start_run(run_name=f"train {name}")


def log_training(name: str, states: dict[str, int], source: Source) -> None:
    """What was trained, on what: in one call."""
    import mlflow
    from mlflow.entities import Metric, RunTag
    from mlflow.utils.time import get_current_time_millis

    now = get_current_time_millis()
    run = mlflow.active_run()
    mlflow.MlflowClient().log_batch(
        run.info.run_id,
        metrics=[
            Metric(f"{name}.{state}", float(count), now, 0) for state, count in states.items()
        ],
        tags=[
            RunTag(f"headrace.{name}.by", ", ".join(source.by)),
            RunTag(f"headrace.{name}.table", str(source.ref)),
        ],
    )


def log_pack(
    folder: Path,
    *,
    name: str,
    signature: ModelSignature | None,
    modules: Sequence[str],
    code_paths: Sequence[str],
    tags: dict[str, str],
) -> int:
    """Log a pack as one model to the current run and register it.

    Returns:
        The version that the registry gave it.
    """
    import mlflow

    with warnings.catch_warnings():
        # The signature is made from the table's own schema; MLflow would like an example too.
        warnings.simplefilter("ignore", UserWarning)
        info = mlflow.pyfunc.log_model(
            name=name,
            loader_module="headrace.ml.group_model",
            data_path=str(folder),
            code_paths=list(code_paths) or None,
            signature=signature,
            # Given by hand: to find them out, MLflow would load the model in a process of its own.
            pip_requirements=_requirements(modules),
            registered_model_name=name,
        )
    version = str(info.registered_model_version)
    client = mlflow.MlflowClient()
    for key, value in tags.items():
        client.set_model_version_tag(name, version, key, value)
    return int(version)


def _requirements(modules: Sequence[str]) -> list[str]:
    tops = {module.partition(".")[0] for module in modules} - sys.stdlib_module_names
    known = _distributions() if tops else {}
    names = {*_REQUIRED, *(found for top in tops for found in known.get(top, [])[:1]), "headrace"}
    with contextlib.suppress(metadata.PackageNotFoundError):
        return [f"{name}=={metadata.version(name)}" for name in sorted(names)]
    return sorted(names)


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Names of distributions by top-level module; finding out takes a second."""
    return metadata.packages_distributions()


def last_version(name: str) -> int | None:
    """The newest registered version of a model, or None."""
    import mlflow

    found = mlflow.MlflowClient().search_model_versions(f"name='{name}'")
    return max((int(version.version) for version in found), default=None)


@contextmanager
def fetch_pack(name: str, version: int) -> Iterator[Pack]:
    """A registered model's pack, in a folder that is removed at the end."""
    import mlflow

    with tempfile.TemporaryDirectory(prefix="headrace-groups-") as folder:
        path = Path(
            mlflow.artifacts.download_artifacts(f"models:/{name}/{version}", dst_path=folder)
        )
        [facts] = path.rglob("facts.json")
        yield open_pack(facts.parent)


def signature_of(source: Source, nulls: Mapping[str, int]) -> ModelSignature | None:
    """The columns that predictions need, as MLflow checks them.

    A whole number that is null somewhere reaches models as a float, so it is declared as one.

    Returns:
        The signature, or None where a column has a type that MLflow does not know.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    columns = []
    for name in (*source.by, *source.features):
        kind = source.field(name).type
        text = kind.name.partition("(")[0] if isinstance(kind, Primitive) else ""
        found = "string" if text in ("char", "varchar") else _TYPES.get(text)
        if found is None:
            return None
        columns.append(ColSpec("double" if found in _WHOLE and nulls.get(name) else found, name))
    return ModelSignature(inputs=Schema(columns))


def code_of(function: Any) -> str:
    """A hash of what a function does: its code, its defaults and the values that it closes over.

    Functions that it calls by name are not looked into.
    """
    digest = sha256()
    _feed(digest, function)
    return digest.hexdigest()[:20]


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, types.FunctionType):
        _feed(digest, value.__code__)
        _feed(digest, value.__defaults__)
        _feed(digest, sorted((value.__kwdefaults__ or {}).items()))
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a cell that is not filled yet
                _feed(digest, cell.cell_contents)
    elif isinstance(value, types.CodeType):
        digest.update(value.co_code)
        _feed(digest, value.co_names)
        _feed(digest, value.co_consts)
    elif isinstance(value, tuple | list):
        digest.update(b"(")
        for item in value:
            _feed(digest, item)
    elif isinstance(value, str | int | float | bytes | bool | None):
        digest.update(repr(value).encode())
    elif hasattr(value, "func") and hasattr(value, "args"):  # functools.partial
        _feed(digest, value.func)
        _feed(digest, value.args)
        _feed(digest, sorted(value.keywords.items()))
    elif inspect.isclass(value) or inspect.ismodule(value) or inspect.isbuiltin(value):
        digest.update(value.__name__.encode())
    else:
        digest.update(type(value).__qualname__.encode())
        with contextlib.suppress(Exception):
            import cloudpickle

            digest.update(cloudpickle.dumps(value))
