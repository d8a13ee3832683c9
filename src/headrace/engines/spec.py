"""What passes between the flow's process and the process of an attempt, as JSON in files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer
from pydantic_core import PydanticSerializationError, to_jsonable_python

from headrace.context import Attachment, Lineage
from headrace.engines.private_file import write_private
from headrace.engines.usage import Usage
from headrace.exceptions import ArgumentError
from headrace.profiles.models import Profile
from headrace.profiles.storage import Storage
from headrace.tables import TableRef

SPEC_FILE: Final = "spec.json"
SECRETS_FILE: Final = "secrets.json"
RESULT_FILE: Final = "result.json"
EXIT_FILE: Final = "exit.json"
LOG_FILE: Final = "log.txt"
ALIVE_FILE: Final = "alive"

_TABLE_TAG: Final = "__headrace_table__"
_LARGEST_ARGUMENT: Final = 2**20


class FunctionRef(BaseModel):
    """Where a task's function is defined.

    Attributes:
        module: Its module, as the flow's process knows it (`tasks.build_features`, `__main__`).
        name: Its qualified name in the module.
        file: The module's file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str
    name: str
    file: Path


class AttemptSpec(BaseModel):
    """All that an attempt's process needs to know.

    Attributes:
        kind: Engine of the task.
        function: The task's function.
        arguments: Values by parameter name, encoded with `encode_arguments`.
        run_id: The headrace run.
        task: Name of the task.
        attempt: 1 for the first attempt, then 2, 3, ...
        key: Key of the for-each item, or an empty string.
        generation: The same for attempts that do the same work; see `TaskContext`.
        cursors: Versions up to which the task has read tables' changes; see `TaskContext`.
        pipeline: Name of the pipeline.
        parameters: The run's parameters, as JSON values.
        lake: Absolute folder or address that short table names live in.
        mlflow_run_id: The task's MLflow run, or None.
        profile: The resolved profile.
        storage: Credentials of the lake. They travel in a file of their own.
        root: The project's root; modules are imported from it, and it is the working folder.
        folder: The attempt's folder, for this file, the log and the result.
        env: Further environment variables, such as MLflow's. The profile's own are added.
        address: A shared cluster or Spark Connect server to use, or None to start one.
        grace_s: How long the processes may take to end by themselves.
        lease_s: How long the flow's process may stand still before the attempt ends itself.
        scratch: Temporary folder with a short path, filled in at launch.
        flow_pid: The flow's process, filled in at launch.
        marker: What marks the attempt's processes in their environment.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["spark", "ray", "python"]
    function: FunctionRef
    arguments: dict[str, Any] = Field(default_factory=dict)
    run_id: str
    task: str
    attempt: int = 1
    key: str = ""
    generation: str = ""
    cursors: dict[str, int] = Field(default_factory=dict)
    pipeline: str = "local"
    parameters: dict[str, Any] = Field(default_factory=dict)
    lake: str
    mlflow_run_id: str | None = None
    profile: Profile
    storage: Storage = Field(default_factory=Storage, exclude=True)
    root: Path
    folder: Path
    env: dict[str, str] = Field(default_factory=dict, exclude=True)
    address: str | None = None
    grace_s: float = 5.0
    lease_s: float | None = None
    scratch: Path | None = None
    flow_pid: int = 0
    marker: str = Field(default_factory=lambda: uuid.uuid4().hex)

    @field_serializer("function")
    def _plain_function(self, value: FunctionRef) -> dict[str, str]:
        return {"module": value.module, "name": value.name, "file": str(value.file)}

    def write(self) -> Path:
        """Write the spec and its secrets into the attempt's folder, readable by the owner only."""
        path = self.folder / SPEC_FILE
        write_private(self.folder / SECRETS_FILE, json.dumps(reveal_storage(self.storage)))
        write_private(path, self.model_dump_json())
        return path

    @classmethod
    def read(cls, path: Path) -> AttemptSpec:
        """Read a spec, and take its secrets away from the disk."""
        spec = cls.model_validate_json(path.read_bytes())
        secrets = path.with_name(SECRETS_FILE)
        spec.storage = Storage.model_validate_json(secrets.read_bytes())
        secrets.unlink()
        return spec


class AttemptResult(BaseModel):
    """What a successful attempt gave.

    Attributes:
        value: The task's return value; table references are `TableRef`s again.
        reads: Tables that it read.
        writes: Tables that it wrote.
        attachments: Files and texts to show with the run.
        usage: What its processes used.
        log_path: Its log.
    """

    value: Any = None
    reads: list[Lineage] = Field(default_factory=list)
    writes: list[Lineage] = Field(default_factory=list)
    attachments: list[Attachment] = Field(default_factory=list)
    usage: Usage = Field(default_factory=Usage)
    log_path: Path


def encode_arguments(task: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a task's arguments into JSON values.

    Args:
        task: Name of the task, for error texts.
        arguments: Values by parameter name. Table references, dates, paths, enums, dataclasses
            and pydantic models pass, also within lists and dicts.

    Returns:
        What `AttemptSpec.arguments` takes.

    Raises:
        ArgumentError: A value can't be written as JSON, or has more than 1 MiB.
    """
    return {name: _encode_argument(task, name, value) for name, value in arguments.items()}


def _encode_argument(task: str, name: str, value: Any) -> Any:
    try:
        plain = to_jsonable_python(tag_tables(value), fallback=_scalar)
        size = len(json.dumps(plain))
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        reason = f"It is a {kind}: {str(error).splitlines()[0]}."
        raise ArgumentError(task=task, argument=name, reason=reason) from error
    if size > _LARGEST_ARGUMENT:
        reason = f"It has {size / 2**20:.1f} MiB as JSON; 1 MiB may pass."
        raise ArgumentError(task=task, argument=name, reason=reason)
    return plain


def _scalar(value: Any) -> Any:
    # numpy's numbers know the Python number they stand for; arrays are data and don't pass.
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    raise ValueError(f"a {type(value).__name__} can't be written as JSON")


def tag_tables(value: Any) -> Any:
    """Mark table references in lists and dicts, so that `untag_tables` finds them again."""
    if isinstance(value, TableRef):
        return {_TABLE_TAG: value.model_dump()}
    if isinstance(value, dict):
        return {key: tag_tables(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return [tag_tables(item) for item in value]
    return value


def untag_tables(value: Any) -> Any:
    """Give `TableRef`s back for what `tag_tables` marked."""
    if isinstance(value, dict):
        if value.keys() == {_TABLE_TAG}:
            return TableRef.model_validate(value[_TABLE_TAG])
        return {key: untag_tables(item) for key, item in value.items()}
    if isinstance(value, list):
        return [untag_tables(item) for item in value]
    return value


def reveal_storage(storage: Storage) -> dict[str, Any]:
    """The storage's settings with its secrets as plain text: for a private file only."""
    plain = storage.model_dump(mode="json")
    for name in type(storage).model_fields:
        secret = getattr(storage, name)
        if isinstance(secret, SecretStr):
            plain[name] = secret.get_secret_value()
    return plain
