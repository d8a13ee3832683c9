"""Load an environment: `infra/profiles/NAME.toml` with everything that a run lays over it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from headrace.exceptions import (
    EnvironmentNotFoundError,
    ProfileError,
    ProfileNotFoundError,
    SecretError,
)
from headrace.profiles.check import build, show
from headrace.profiles.merge import RawProfile, Settings, check_tables, merge_profile
from headrace.profiles.models import (
    PROFILE_TYPES,
    Environment,
    MlflowSettings,
    Origin,
    PrefectSettings,
    Profile,
)
from headrace.profiles.overrides import apply_overrides, task_profiles
from headrace.profiles.places import STARTS, known_starts, place_of
from headrace.profiles.project import PROFILES, find_project, project_address
from headrace.profiles.secrets import SecretRef, has_password, resolve_secret
from headrace.profiles.storage import SECRET_FIELDS, Storage
from headrace.profiles.toml_file import Key, read_toml

if TYPE_CHECKING:
    from pydantic import BaseModel

DEFAULT_ENVIRONMENT: Final = "local"
_SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "mlflow": MlflowSettings,
    "prefect": PrefectSettings,
    "storage": Storage,
}
_FROM_FILE: Final = ("lake", "ledger_url", *_SECTIONS, "profiles", "defaults")
_ADDRESSES: Final[tuple[Key, ...]] = (
    ("lake",),
    ("ledger_url",),
    ("mlflow", "tracking_uri"),
    ("mlflow", "artifact_root"),
    ("mlflow", "registry_uri"),
    ("prefect", "api_url"),
    ("storage", "endpoint"),
)


def load_environment(
    name: str | None = None,
    *,
    root: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    profiles: Mapping[str, str] | None = None,
    resolve_secrets: bool = True,
) -> Environment:
    """Read and check one environment of the project.

    Args:
        name: `local`, `compose`, ...; else HEADRACE_ENV, else `local`.
        root: The project's root; found from the working folder by default.
        overrides: Values by dotted key (`"profiles.etl.cores"`) that win over the file.
        profiles: Profile by task for this run; it wins over HEADRACE_PROFILES.
        resolve_secrets: False fetches no secret, for showing settings where they aren't at hand.

    Raises:
        ProjectNotFoundError: There is no project here.
        EnvironmentNotFoundError: The project has no such environment.
        ProfileError: The file, or a value in it, is wrong; file, line and key are named.
        ProfileNotFoundError: A task is given a profile that the environment doesn't define.
        SecretError: A secret by reference can't be fetched.
    """
    root = root.absolute() if root else find_project()
    name = name or os.environ.get("HEADRACE_ENV") or DEFAULT_ENVIRONMENT
    source = environment_file(root, name)
    settings = Settings.from_file(read_toml(source, (PROFILES / source.name).as_posix()))
    apply_overrides(settings, overrides or {})
    check_tables(settings, _FROM_FILE)
    merged = {each: merge_profile(settings, each) for each in settings.data["profiles"]}
    for raw in merged.values():
        _resolve_place(raw, root, fetch=resolve_secrets)
    _resolve_storage(settings, root, fetch=resolve_secrets)
    _resolve_addresses(settings, root, fetch=resolve_secrets)
    given = {
        "name": name,
        "source": source,
        "root": root,
        "profiles": {each: _profile(raw) for each, raw in merged.items()},
        "task_profiles": task_profiles(profiles),
        "origins": _origins(settings, merged),
        **{each: _section(settings, each) for each in _SECTIONS},
    }
    plain = {k: v for k, v in settings.data.items() if k not in given and k != "defaults"}
    environment = build(Environment, plain, key=(), origin=settings.origin, given=given)
    _check_task_profiles(environment)
    return environment


def environment_file(root: Path, name: str) -> Path:
    """The file of an environment.

    Raises:
        EnvironmentNotFoundError: There is none of that name.
    """
    path = root / PROFILES / f"{name}.toml"
    if not path.exists() or Path(name).name != name:
        raise EnvironmentNotFoundError(
            name=name, folder=PROFILES.as_posix(), defined=environment_names(root)
        )
    return path


def environment_names(root: Path) -> list[str]:
    """The environments of a project, by name."""
    return sorted(path.stem for path in (root / PROFILES).glob("*.toml"))


def _profile(raw: RawProfile) -> Profile:
    model = PROFILE_TYPES[raw.data["engine"]]
    given = {"name": raw.name}
    return build(model, raw.data, key=("profiles", raw.name), origin=raw.origin, given=given)


def _resolve_place(raw: RawProfile, root: Path, *, fetch: bool) -> None:
    """Fetch an address by reference, and find `where` by the address."""
    address, where = raw.data.get("address"), raw.data.get("where")
    if where == "local":
        # In so many words: an address that it inherits is not meant.
        raw.data.pop("address", None)
        return
    if isinstance(address, dict):
        key: Key = ("profiles", raw.name, "address")
        ref = build(SecretRef, address, key=key, origin=lambda rest: raw.origin(("address", *rest)))
        raw.data["address"] = SecretStr(f"({ref})")
        try:
            fetched = resolve_secret(ref, root=root, wanted_by=".".join(key))
        except SecretError:
            if fetch:
                raise
            return
        raw.data["address"], address = fetched, fetched.get_secret_value()
    known = {"cluster", *STARTS.get(raw.data["engine"], {})}
    if address is None and where not in known:
        return
    place = place_of(raw.data["engine"], address) if isinstance(address, str) else None
    if place is None or where not in (None, place):
        raise _wrong_place(raw, place)
    raw.data["where"] = place


def _wrong_place(raw: RawProfile, place: str | None) -> ProfileError:
    where, engine = raw.data.get("where"), raw.data["engine"]
    name = "where" if place or "address" not in raw.data else "address"
    if "address" not in raw.data:
        problem = f"{show(where)} needs an address"
    elif place:
        problem = f"{show(where)} and the address, which is one of {show(place)}, contradict"
    else:
        problem = "the address is none that the engine knows"
    starts = known_starts(engine)
    return ProfileError(
        origin=str(raw.origin((name,))),
        key=f"profiles.{raw.name}.{name}",
        problem=problem,
        found=f"Addresses for {engine} start with: {starts}."
        if starts
        else f"The engine {engine} has no clusters.",
        fix="remove `where`: the address tells" if place else "correct or remove the address",
    )


def _section(settings: Settings, name: str) -> Any:
    data = settings.data.get(name, {})
    if not isinstance(data, dict):
        raise ProfileError(
            origin=str(settings.origin((name,))),
            key=name,
            problem=f"{show(data)} is not a table",
            found="",
            fix=f"write a header: [{name}]",
        )
    return build(
        _SECTIONS[name],
        data,
        key=(name,),
        origin=lambda key: settings.origin((name, *key)),
        # When credentials end is for the refresh command to say, not for the file.
        given={"expires_at": None} if name == "storage" else None,
    )


def _resolve_storage(settings: Settings, root: Path, *, fetch: bool) -> None:
    storage = settings.data.get("storage")
    if not isinstance(storage, dict):
        return
    for name in SECRET_FIELDS:
        if name in storage:
            secret = _secret(settings, ("storage", name), storage[name], root, fetch=fetch)
            storage[name] = secret
    command = storage.get("refresh_command")
    if isinstance(command, list):
        storage["refresh_command"] = tuple(command)


def _resolve_addresses(settings: Settings, root: Path, *, fetch: bool) -> None:
    """Make paths absolute, fetch addresses by reference, and refuse a password in the file."""
    for key in _ADDRESSES:
        table = settings.data
        if len(key) > 1:
            table = settings.data.setdefault(key[0], {})
            if not isinstance(table, dict):
                return
        value = table.get(key[-1], _default_address(key))
        if isinstance(value, dict):
            secret = _secret(settings, key, value, root, fetch=fetch)
            table[key[-1]] = secret.get_secret_value()
        elif isinstance(value, str):
            if has_password(value) and settings.origin(key).line:
                raise _literal_secret(settings, key, "a password stands in the file")
            if key != ("storage", "endpoint"):
                value = project_address(value, root)
            table[key[-1]] = value


def _default_address(key: Key) -> object:
    model: type[BaseModel] = _SECTIONS[key[0]] if len(key) > 1 else Environment
    return model.model_fields[key[-1]].default


def _secret(settings: Settings, key: Key, value: object, root: Path, *, fetch: bool) -> SecretStr:
    if not isinstance(value, dict):
        raise _literal_secret(settings, key, "a secret stands in the file")
    ref = build(SecretRef, value, key=key, origin=lambda rest: settings.origin((*key, *rest)))
    if not fetch:
        return SecretStr(f"({ref})")
    return resolve_secret(ref, root=root, wanted_by=".".join(key))


def _literal_secret(settings: Settings, key: Key, problem: str) -> ProfileError:
    variable = "_".join(("HEADRACE", *key)).upper()
    return ProfileError(
        origin=str(settings.origin(key)),
        key=".".join(key),
        problem=problem,
        found="Secrets are given by reference, so that the file can be in git.",
        fix=f'{key[-1]} = {{ env = "{variable}" }}, or {key[-1]} = {{ file = "path" }}',
    )


def _origins(settings: Settings, merged: Mapping[str, RawProfile]) -> dict[str, Origin]:
    origins = {".".join(k): o for k, o in settings.origins.items() if k[0] != "profiles"}
    for name, raw in merged.items():
        origins |= {".".join(("profiles", name, *k)): o for k, o in raw.origins.items()}
    return origins


def _check_task_profiles(environment: Environment) -> None:
    for task, profile in environment.task_profiles.items():
        if profile not in environment.profiles:
            raise ProfileNotFoundError(
                profile=profile,
                task=task,
                file=environment.file,
                defined=list(environment.profiles),
            )
