"""Put profiles together from defaults, `extends` and their own keys, and remember the origins."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.exceptions import ProfileError, closest
from headrace.profiles.check import unknown_key
from headrace.profiles.models import PROFILE_TYPES, Origin
from headrace.profiles.toml_file import Key, TomlFile

# References: one on top of another replaces it.
_WHOLE: Final = ("address", "token")


@dataclass
class Settings:
    """Values of a TOML file, still unchecked, with the origin of each.

    Attributes:
        data: The values.
        origins: Origin by key path; a table's own entry is where it starts.
        file: Name of the file.
    """

    data: dict[str, Any]
    origins: dict[Key, Origin]
    file: str

    @classmethod
    def from_file(cls, file: TomlFile) -> Settings:
        """Start with what the file says."""
        settings = cls(data=file.data, origins={}, file=file.name)
        for key in walk(file.data):
            settings.origins[key] = Origin(source=file.name, line=file.line(key))
        return settings

    def put(self, key: Key, value: object, origin: Origin) -> None:
        """Set one value from outside the file (a variable, an option)."""
        table = self.data
        for part in key[:-1]:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                return
            table = inner
        table[key[-1]] = value
        self.origins[key] = origin

    def origin(self, key: Key) -> Origin:
        """Where a value came from, or the table around it."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.origins:
                return self.origins[key[:length]]
        return Origin(source=self.file)


@dataclass
class RawProfile:
    """A profile before it is checked: its keys from all levels and their origins."""

    name: str
    place: Origin
    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[Key, Origin] = field(default_factory=dict)

    def origin(self, key: Key) -> Origin:
        """Where a value came from, or the table around it."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.origins:
                return self.origins[key[:length]]
        return self.place

    def add(self, table: Mapping[str, Any], settings: Settings, key: Key) -> None:
        """Lay `table` over what is there; tables inside (`env`, `spark_conf`) merge key by key."""
        for name, value in table.items():
            old = self.data.get(name)
            if isinstance(old, dict) and isinstance(value, dict) and name not in _WHOLE:
                self.data[name] = {**old, **value}
            else:
                self.data[name] = value
                self.origins = {k: o for k, o in self.origins.items() if k[0] != name}
            self.origins[name,] = settings.origin((*key, name))
            for inner in walk(value):
                self.origins[name, *inner] = settings.origin((*key, name, *inner))


def merge_profile(settings: Settings, name: str) -> RawProfile:
    """Lay `[defaults.ENGINE]`, the profiles that `extends` names, and the profile over each other.

    Raises:
        ProfileError: `extends` names no profile or goes round in a circle, or the engine is
            missing, unknown, or not that of the profile below.
    """
    chain = _chain(settings, name)
    merged = RawProfile(name, place=settings.origin(("profiles", name)))
    engine, key = _engine(settings, chain)
    defaults = settings.data.get("defaults", {}).get(engine, {})
    merged.add(defaults, settings, ("defaults", engine))
    for member in reversed(chain):
        table = {k: v for k, v in _table(settings, member).items() if k != "extends"}
        merged.add(table, settings, ("profiles", member))
    merged.data["engine"] = engine
    merged.origins["engine",] = settings.origin(key)
    return merged


def _chain(settings: Settings, name: str) -> list[str]:
    """The profile, the one it extends, and so on."""
    chain = [name]
    while (parent := _table(settings, chain[-1]).get("extends")) is not None:
        key = ("profiles", chain[-1], "extends")
        if not isinstance(parent, str) or parent in chain:
            circle = " -> ".join([*chain, str(parent)])
            raise ProfileError(
                origin=str(settings.origin(key)),
                key=".".join(key),
                problem=f"{circle} goes round in a circle"
                if isinstance(parent, str)
                else f"{parent!r} is not the name of a profile",
                found="A profile extends one other profile, by its name.",
                fix="remove one `extends`",
            )
        if parent not in settings.data["profiles"]:
            defined = [other for other in settings.data["profiles"] if other != chain[-1]]
            raise ProfileError(
                origin=str(settings.origin(key)),
                key=".".join(key),
                problem=f"there is no profile {parent!r}",
                found=f"Defined: {', '.join(sorted(defined)) or 'none'}.",
                fix=f'extends = "{closest(parent, defined, cutoff=0.0)}"'
                if defined
                else "remove it",
            )
        chain.append(parent)
    return chain


def _engine(settings: Settings, chain: list[str]) -> tuple[str, Key]:
    """The first engine named along the chain; a profile can't change the one it inherits."""
    named = [
        (table["engine"], ("profiles", member, "engine"))
        for member in chain
        if "engine" in (table := _table(settings, member))
    ]
    key = ("profiles", chain[0], "engine")
    choice = ", ".join(PROFILE_TYPES)
    if not named:
        raise ProfileError(
            origin=str(settings.origin(key)),
            key=".".join(key),
            problem="the engine is missing",
            found=f"Engines: {choice}.",
            fix='add engine = "spark"',
        )
    engine, key = named[0]
    if not isinstance(engine, str) or engine not in PROFILE_TYPES:
        near = closest(str(engine), PROFILE_TYPES)
        raise ProfileError(
            origin=str(settings.origin(key)),
            key=".".join(key),
            problem=f"there is no engine {engine!r}",
            found=f"Engines: {choice}.",
            fix=f'engine = "{near or "spark"}"',
        )
    if any(other != engine for other, _ in named):
        raise ProfileError(
            origin=str(settings.origin(key)),
            key=".".join(key),
            problem=f"{chain[0]!r} is for {engine}, but extends {chain[1]!r}, which is for another",
            found="A profile has the engine of the one it extends.",
            fix="extend a profile of the same engine",
        )
    return engine, key


def _table(settings: Settings, name: str) -> dict[str, Any]:
    table: dict[str, Any] = settings.data["profiles"][name]
    return table


def check_tables(settings: Settings, known: Collection[str]) -> None:
    """Make sure that the file has no unknown section and that its sections are tables.

    Args:
        settings: The file's values.
        known: The keys that may stand at the top.

    Raises:
        ProfileError: `profiles`, `defaults`, or something in them, is no table.
        UnknownKeyError: An unknown key at the top, or a `[defaults.X]` for no engine.
    """
    for name, value in settings.data.items():
        if name not in known:
            raise unknown_key(name, value, known, key=(), origin=settings.origin((name,)))
    for section in ("profiles", "defaults"):
        tables = settings.data.setdefault(section, {})
        entries: list[tuple[Key, Any]] = [((section,), tables)]
        if isinstance(tables, dict):
            entries += [((section, name), value) for name, value in tables.items()]
        for key, value in entries:
            if not isinstance(value, dict):
                raise ProfileError(
                    origin=str(settings.origin(key)),
                    key=".".join(key),
                    problem=f"{value!r} is not a table",
                    found="",
                    fix=f"write a header: [{'.'.join(key)}{'.NAME' if len(key) == 1 else ''}]",
                )
    for name, value in settings.data["defaults"].items():
        if name not in PROFILE_TYPES:
            origin = settings.origin(("defaults", name))
            raise unknown_key(name, value, PROFILE_TYPES, key=("defaults",), origin=origin)


def walk(value: object) -> list[Key]:
    """The paths of all keys in a nested table, outer ones first."""
    if not isinstance(value, dict):
        return []
    return [
        path
        for name, inner in value.items()
        for path in ((name,), *((name, *rest) for rest in walk(inner)))
    ]
