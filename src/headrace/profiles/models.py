"""What an environment file says, checked: the environment and its compute profiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from headrace.exceptions import ProfileEngineError, ProfileNotFoundError
from headrace.profiles.notice_blocks import check_name
from headrace.profiles.secrets import SecretRef, mask_password, resolve_secret
from headrace.profiles.storage import Storage
from headrace.profiles.units import format_duration, format_memory, parse_duration, parse_memory

Engine = Literal["spark", "ray", "python"]


@dataclass(frozen=True)
class Written:
    """How a field is written in TOML when it isn't by its own name and type.

    Attributes:
        key: The key in TOML (`memory` for the field `memory_mib`).
        parse: From the TOML value to the field's value; a UnitError says what is wrong.
        show: From the field's value back to what TOML would say.
    """

    key: str
    parse: Callable[[object], Any]
    show: Callable[[Any], str]


def _texts(value: object, path: str = "") -> object:
    """Flatten `spark.sql.x = 4` (nested tables in TOML) to `{"spark.sql.x": "4"}`."""
    if not isinstance(value, Mapping):
        return value
    flat: dict[str, object] = {}
    for key, item in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(item, Mapping):
            flat.update(_texts(item, name))  # type: ignore[call-overload]
        elif isinstance(item, bool):
            flat[name] = str(item).lower()
        else:
            flat[name] = str(item) if isinstance(item, int | float) else item
    return flat


def _variable_names(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} can't be the name of an environment variable")
    return value


def _spark_names(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        # Spark drops any other name with no more than a line in its log.
        if not name.startswith("spark."):
            raise ValueError(f'{name!r} is no Spark setting: they start with "spark."')
    return value


Memory = Annotated[StrictInt, Field(ge=1), Written("memory", parse_memory, format_memory)]
ObjectStore = Annotated[
    StrictInt, Field(ge=1), Written("object_store_memory", parse_memory, format_memory)
]
Timeout = Annotated[StrictFloat, Field(gt=0), Written("timeout", parse_duration, format_duration)]
Count = Annotated[StrictInt, Field(ge=1, le=1_000_000)]
Conf = Annotated[dict[str, StrictStr], BeforeValidator(_texts), AfterValidator(_spark_names)]
EnvValues = Annotated[dict[str, StrictStr | SecretRef], AfterValidator(_variable_names)]


class Model(BaseModel):
    """Base of all: unknown keys are errors, values don't change, passwords don't show."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, mask_password(value) if isinstance(value, str) else value


class ComputeProfile(Model):
    """What one task may use. Cores, memory and price are those of the whole task.

    Attributes:
        name: Name in `[profiles.NAME]`.
        cores: CPU cores, all workers together.
        memory_mib: Memory of all the task's processes together.
        workers: How many workers share cores and memory.
        min_workers: Lower bound for autoscaling; None means `workers`.
        max_workers: Upper bound for autoscaling; None means `workers`.
        gpus: GPUs, all workers together.
        env: Environment variables of the task; a value is a text or a secret by reference.
        reuse: `task` gives each task an engine of its own; `run` shares one within a run.
        timeout_s: Time limit of one attempt, or None.
        price_per_hour: What an hour on this profile costs, in any one currency.
        labels: Free labels; they go to Prefect and MLflow as tags.
    """

    name: str
    cores: Count = 1
    memory_mib: Memory = 1024
    workers: Count = 1
    min_workers: Count | None = None
    max_workers: Count | None = None
    gpus: Annotated[StrictFloat, Field(ge=0)] = 0.0
    env: EnvValues = Field(default_factory=dict)
    reuse: Literal["task", "run"] = "task"
    timeout_s: Timeout | None = None
    price_per_hour: Annotated[StrictFloat, Field(ge=0)] = 0.0
    labels: dict[str, StrictStr] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _shape(self) -> ComputeProfile:
        if self.workers > self.cores:
            raise ValueError(
                f"workers = {self.workers} need at least as many cores, not {self.cores}"
            )
        if self.min_workers is not None and self.min_workers > self.workers:
            raise ValueError(
                f"min_workers = {self.min_workers} is more than workers = {self.workers}"
            )
        if self.max_workers is not None and self.max_workers < self.workers:
            raise ValueError(
                f"max_workers = {self.max_workers} is less than workers = {self.workers}"
            )
        return self

    @property
    def cores_per_worker(self) -> int:
        """Whole cores that each worker has."""
        return self.cores // self.workers

    @property
    def memory_mib_per_worker(self) -> int:
        """Memory that each worker has, when all have the same."""
        return self.memory_mib // self.workers

    def resolve_env(self, root: Path) -> dict[str, str]:
        """The task's environment variables with the secrets filled in: never log or print it.

        Args:
            root: The project's root, for secrets in files.

        Raises:
            SecretError: A secret can't be fetched.
        """
        values = {}
        for name, value in self.env.items():
            if isinstance(value, SecretRef):
                wanted_by = f"profiles.{self.name}.env.{name}"
                secret = resolve_secret(value, root=root, wanted_by=wanted_by)
                values[name] = secret.get_secret_value()
            else:
                values[name] = value
        return values


class ClusterProfile(ComputeProfile):
    """What profiles of engines that have clusters share.

    Attributes:
        address: The cluster's address; a secret when it came by reference, since it may hold a
            token. It is not part of a dump.
        image: Image of a task's own cluster on Kubernetes.
        node_labels: Labels that the nodes of a task's own cluster must have.
        spot: Whether nodes that may be taken away at any time will do.
    """

    address: StrictStr | SecretStr | None = Field(default=None, exclude=True)
    image: StrictStr | None = None
    node_labels: dict[str, StrictStr] = Field(default_factory=dict)
    spot: StrictBool = False

    def reveal_address(self) -> str | None:
        """The address with its token, if it has one: never log or print it."""
        address = self.address
        return address.get_secret_value() if isinstance(address, SecretStr) else address


class SparkProfile(ClusterProfile):
    """A Spark session.

    Attributes:
        engine: Always `spark`.
        where: `local` runs Spark in the task's own process tree, as `local[cores]`. The others give
            its work to a cluster: `standalone` (`spark://HOST:PORT`), `connect` (a Spark Connect
            server, `sc://HOST:PORT`), `kubernetes` (`k8s://https://HOST:PORT`), `yarn`, and
            `processes` (`local-cluster[2,1,1024]`, a cluster played by processes, for tests).
        driver_host: Name or address under which a cluster's workers reach this machine.
        spark_conf: Spark settings, over headrace's own.
    """

    engine: Literal["spark"] = "spark"
    where: Literal["local", "standalone", "connect", "kubernetes", "yarn", "processes"] = "local"
    driver_host: StrictStr | None = None
    spark_conf: Conf = Field(default_factory=dict)


class RayProfile(ClusterProfile):
    """A Ray cluster.

    Attributes:
        engine: Always `ray`.
        where: `local` starts a cluster of the profile's size for the task, or for the run.
            `cluster` (`HOST:PORT`) connects from one of a cluster's own nodes. `job`
            (`http://HOST:8265`) sends the task to a cluster as a job, one of KubeRay's too.
        token: Token of a `job` address, by reference.
        resources: Ray's custom resources by name.
        object_store_mib: Shared memory for Ray's object store, part of `memory_mib`; None leaves
            the choice to the engine.
        dashboard: Whether Ray's dashboard is started (on 127.0.0.1).
    """

    engine: Literal["ray"] = "ray"
    where: Literal["local", "cluster", "job"] = "local"
    token: SecretRef | None = None
    resources: dict[str, Annotated[StrictFloat, Field(gt=0)]] = Field(default_factory=dict)
    object_store_mib: ObjectStore | None = None
    dashboard: StrictBool = False

    @model_validator(mode="after")
    def _store_fits(self) -> RayProfile:
        if self.object_store_mib is not None and self.object_store_mib >= self.memory_mib:
            store, whole = format_memory(self.object_store_mib), format_memory(self.memory_mib)
            raise ValueError(f"object_store_memory = {store} leaves nothing of memory = {whole}")
        return self


class PythonProfile(ComputeProfile):
    """Plain Python in a process of its own.

    Attributes:
        engine: Always `python`.
        where: Always `local`.
    """

    engine: Literal["python"] = "python"
    where: Literal["local"] = "local"


Profile = Annotated[SparkProfile | RayProfile | PythonProfile, Field(discriminator="engine")]

PROFILE_TYPES: dict[str, type[SparkProfile | RayProfile | PythonProfile]] = {
    "spark": SparkProfile,
    "ray": RayProfile,
    "python": PythonProfile,
}


class MlflowSettings(Model):
    """Where MLflow keeps runs, models and files.

    Attributes:
        tracking_uri: A server's address or a database URL.
        artifact_root: Folder or address for artifacts of new experiments.
        registry_uri: Model registry; None means the tracking server's.
        experiment: Experiment of the runs; None means one named like the pipeline.
        timeout_s: How long a lost MLflow server may hold up a task, at most.
    """

    tracking_uri: StrictStr = "sqlite:///.headrace/mlflow.db"
    artifact_root: StrictStr = ".headrace/mlartifacts"
    registry_uri: StrictStr | None = None
    experiment: StrictStr | None = None
    timeout_s: Timeout = 10.0


class PrefectSettings(Model):
    """Which Prefect server shows the runs.

    Attributes:
        api_url: The server's API; None means a server in the background, started when needed.
        port: Port of that background server on 127.0.0.1; None means 4200 or, where that is taken,
            any free one.
        timeout_s: How long the background server may take to start.
        notify: Blocks that are told of failures of every pipeline that is served, as `type/name`.
    """

    api_url: StrictStr | None = None
    port: Annotated[StrictInt, Field(ge=1, le=65535)] | None = None
    timeout_s: Timeout = 300.0
    notify: tuple[Annotated[StrictStr, AfterValidator(check_name)], ...] = ()


class Origin(Model):
    """Where a value came from.

    Attributes:
        source: `infra/profiles/local.toml`, `default`, an environment variable, or an option.
        line: Line in the file, or None.
    """

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Environment(Model):
    """All that `--env NAME` decides: profiles, storage, and the addresses of the services.

    Attributes:
        name: `local` for `infra/profiles/local.toml`.
        source: The file it was read from.
        root: The project's root.
        lake: Folder or address that short table names live in.
        ledger_url: SQLAlchemy URL of the ledger.
        mlflow: MLflow's addresses.
        prefect: Prefect's address.
        storage: Credentials and endpoint of the lake.
        profiles: Compute profiles by name.
        task_profiles: Profiles given per task for this run (`--profile TASK=NAME`).
        origins: Where each value came from, by dotted key; keys that are missing are defaults.
    """

    name: str
    source: Path
    root: Path
    lake: StrictStr = ".headrace/lake"
    ledger_url: StrictStr = "sqlite:///.headrace/ledger.db"
    mlflow: MlflowSettings = Field(default_factory=MlflowSettings)
    prefect: PrefectSettings = Field(default_factory=PrefectSettings)
    storage: Storage = Field(default_factory=Storage)
    profiles: dict[str, Profile] = Field(default_factory=dict)
    task_profiles: dict[str, str] = Field(default_factory=dict)
    origins: dict[str, Origin] = Field(default_factory=dict, repr=False)

    def profile(
        self, name: str, *, task: str | None = None, engine: Engine | None = None
    ) -> SparkProfile | RayProfile | PythonProfile:
        """The profile `name`, or the one that this run gives to `task` instead.

        Args:
            name: Name of the profile that the task asks for.
            task: Name of the task, for overrides and error texts.
            engine: The engine that the task needs, when it matters.

        Raises:
            ProfileNotFoundError: The environment doesn't define it.
            ProfileEngineError: It is for another engine.
        """
        wanted = self.task_profiles.get(task, name) if task else name
        found = self.profiles.get(wanted)
        if found is None:
            raise ProfileNotFoundError(
                profile=wanted, task=task, file=self.file, defined=list(self.profiles)
            )
        if engine is not None and found.engine != engine:
            fitting = sorted(p.name for p in self.profiles.values() if p.engine == engine)
            raise ProfileEngineError(
                profile=wanted,
                task=task or "",
                wanted=engine,
                found=found.engine,
                file=self.file,
                fitting=fitting,
            )
        return found

    @property
    def file(self) -> str:
        """The file's path as the user would write it, from the project's root."""
        inside = self.source.is_relative_to(self.root)
        return self.source.relative_to(self.root).as_posix() if inside else str(self.source)
