"""A model as a value: its fixed version, what columns it asks for, and whether a table has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.delta.schema import Array, DeltaType, Map, Primitive, Struct
from headrace.exceptions import MlRequestError, ModelSignatureError, closest

# MLflow's types, and the table's types whose every value they hold.
_HOLDS: Final[dict[str, tuple[str, ...]]] = {
    "string": ("string", "char", "varchar"),
    "integer": ("byte", "short", "integer"),
    "long": ("byte", "short", "integer", "long"),
    "float": ("byte", "short", "float"),
    "double": ("byte", "short", "integer", "long", "float", "double", "decimal"),
    "boolean": ("boolean",),
    "datetime": ("date", "timestamp", "timestamp_ntz"),
    "binary": ("binary",),
}
# Spark's word for what a column of predictions is.
RETURNS: Final = {
    "string": "string",
    "integer": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "datetime": "timestamp",
}
_TENSORS: Final = {
    "float32": "float",
    "float64": "double",
    "int32": "integer",
    "int64": "long",
    "bool": "boolean",
}


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What a model's signature says.

    Attributes:
        uri: With a fixed version: `models:/NAME/VERSION`, or a run's or a file's address.
        inputs: Column and MLflow type (`double`, `string`, ...), `any` where nothing is said.
        optional: Columns that may be missing.
        outputs: Column and MLflow type of the predictions; empty when the signature has none.
    """

    uri: str
    inputs: tuple[tuple[str, str], ...]
    optional: frozenset[str] = frozenset()
    outputs: tuple[tuple[str, str], ...] = ()


def load_facts(model: str) -> ModelFacts:
    """Ask MLflow about a model; nothing but its description is loaded.

    Args:
        model: `models:/NAME/VERSION`, `models:/NAME@ALIAS`, `models:/NAME/latest`, a name alone,
            or `runs:/...`. An alias is resolved now: all rows get the same version.

    Raises:
        MlRequestError: There is no such model, or it has no signature to check rows by.
    """
    import mlflow

    uri = _fixed(model)
    try:
        signature = mlflow.models.get_model_info(uri).signature
    except mlflow.exceptions.MlflowException as error:
        raise _no_model(model, error) from error
    if signature is None or signature.inputs is None:
        raise MlRequestError(
            problem=f"{uri} has no signature: nothing says which columns it needs.",
            found="Rows are checked against the signature before the first one is scored.",
            fix="log it with signature=mlflow.models.infer_signature(features, predictions)",
        )
    if signature.inputs.is_tensor_spec() or not signature.inputs.has_input_names():
        raise MlRequestError(
            problem=f"The signature of {uri} asks for an array, not for columns by name.",
            found="A table's columns are handed over by name.",
            fix="log it with a pandas frame as example of its input",
        )
    return ModelFacts(
        uri=uri,
        inputs=tuple((spec.name, _kind(spec.type)) for spec in signature.inputs.inputs),
        optional=frozenset(spec.name for spec in signature.inputs.inputs if not spec.required),
        outputs=_outputs(signature.outputs),
    )


def check_table(facts: ModelFacts, schema: Struct, *, table: str) -> tuple[str, ...]:
    """The model's columns that the table has, when it has all that are needed.

    Raises:
        ModelSignatureError: One is missing, or has values that its type can't hold.
    """
    found, problems = [], []
    for name, kind in facts.inputs:
        column = schema.find(name)
        if column is not None and column.name == name:
            if not _fits(column.type, kind):
                problems.append(f"{name} is {_text(column.type)}, the model takes {kind}")
            found.append(name)
        elif name not in facts.optional:
            near = closest(name, schema.names)
            problems.append(f"there is no column {name}" + (f" (but {near})" if near else ""))
    if problems:
        raise ModelSignatureError(model=facts.uri, table=table, problems=problems)
    return tuple(found)


def _fits(column: DeltaType, kind: str) -> bool:
    if kind in ("any", "array", "object", "map"):
        shapes: dict[str, type] = {"array": Array, "object": Struct, "map": Map}
        return kind == "any" or isinstance(column, shapes[kind])
    return isinstance(column, Primitive) and column.name.partition("(")[0] in _HOLDS[kind]


def _text(column: DeltaType) -> str:
    return column.name if isinstance(column, Primitive) else type(column).__name__.lower()


def _kind(spec_type: Any) -> str:
    """`double` and so on; other shapes by their class."""
    name = str(getattr(spec_type, "name", ""))
    if name in _HOLDS:
        return name
    return {"Array": "array", "Object": "object", "Map": "map"}.get(type(spec_type).__name__, "any")


def _outputs(schema: Any) -> tuple[tuple[str, str], ...]:
    """Names and types of the predictions; an unnamed one is called `prediction`."""
    if schema is None:
        return ()
    found = []
    for spec in schema.inputs:
        kind = _TENSORS.get(str(spec.type), "") if schema.is_tensor_spec() else _kind(spec.type)
        if kind not in RETURNS or (schema.is_tensor_spec() and len(spec.shape) != 1):
            return ()
        found.append((spec.name or "prediction", kind))
    return tuple(found)


def _fixed(model: str) -> str:
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact.utils.models import get_model_name_and_version
    from mlflow.tracking import MlflowClient

    if "/" not in model and "@" not in model:
        model = f"models:/{model}/latest"
    if not model.startswith("models:/"):
        return model
    try:
        found: Sequence[str] = get_model_name_and_version(MlflowClient(), model)
    except MlflowException as error:
        raise _no_model(model, error) from error
    return f"models:/{'/'.join(str(part) for part in found)}"


def _no_model(model: str, error: Exception) -> MlRequestError:
    return MlRequestError(
        problem=f"MLflow has no model {model}: {str(error).partition(chr(10))[0]}",
        found="Known: models:/NAME/VERSION, models:/NAME@ALIAS, a registered name, runs:/...",
        fix="see its page: headrace ui",
    )
