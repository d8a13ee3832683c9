"""Checks of this machine: Python, packages, Java, space, memory."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.cli.check import Check
from headrace.cli.output import size_text
from headrace.profiles.units import format_memory

if TYPE_CHECKING:
    from headrace.profiles.models import Environment

PYTHONS: Final = ((3, 11), (3, 13))
GIB: Final = 1024**3
SPACE_NEEDED: Final = 1 * GIB
SPACE_WANTED: Final = 5 * GIB
FILES_WANTED: Final = 4096
ENGINE_PACKAGES: Final = {"spark": ("pyspark", "delta-spark"), "ray": ("ray",), "python": ()}
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Ray keeps its object store


def check_python() -> Check:
    """Whether this Python is supported."""
    found = ".".join(map(str, sys.version_info[:3]))
    oldest, newest = PYTHONS
    if oldest <= sys.version_info[:2] <= newest:
        return Check("python", "ok", f"{found} ({sys.executable})")
    span = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
    return Check("python", "fault", f"{found} is not supported", f"use Python {span}")


def check_packages() -> Iterator[Check]:
    """Whether installed packages have the versions that headrace is tested with."""
    from packaging.requirements import Requirement

    wrong = []
    for text in metadata.requires("headrace") or ():
        requirement = Requirement(text)
        optional = requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            if not optional:
                wrong.append((requirement, "missing"))
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append((requirement, version))
    for requirement, version in wrong:
        wanted = f"{requirement.name}{requirement.specifier}"
        yield Check(
            "packages", "fault", f"{requirement.name} is {version}", f"pip install '{wanted}'"
        )
    if not wrong:
        yield Check(
            "packages", "ok", f"headrace {metadata.version('headrace')}, versions as tested"
        )


def check_engine_packages(engines: Collection[str]) -> Iterator[Check]:
    """Whether the packages of the engines that profiles use are installed."""
    for engine in sorted(engines):
        for package in ENGINE_PACKAGES.get(engine, ()):
            try:
                yield Check(engine, "ok", f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                fix = f"pip install 'headrace[{engine}]'"
                yield Check(engine, "fault", f"{package} is not installed", fix)


def check_names(root: Path) -> Iterator[Check]:
    """Whether a file of the project hides a module of Python or of an installed package."""
    hiding = list(hiding_files(root))
    for path, hidden in hiding:
        name = path.relative_to(root).as_posix()
        yield Check("names", "fault", f"{name} has the name of {hidden}", f"rename {name}")
    if not hiding:
        yield Check("names", "ok", "no file hides a module")


def hiding_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Files in `flows/` and `tasks/` that are named like a module from elsewhere.

    A file that is loaded by its path gets its bare name, and then stands in for that module.
    """
    installed = metadata.packages_distributions()
    own = {"flows", "tasks", root.name}
    for path in sorted([*root.glob("flows/*.py"), *root.glob("tasks/*.py"), *root.glob("*.py")]):
        if path.stem in sys.stdlib_module_names:
            yield path, f"Python's module {path.stem}"
        elif path.stem in installed and path.stem not in own:
            yield path, f"the package {installed[path.stem][0]}"


def check_state(state: Path) -> Check:
    """Whether the state folder can be written and has space."""
    probe = state / f".doctor-{os.getpid()}"
    try:
        probe.write_bytes(b"x" * 4096)
    except OSError as error:
        fix = "free some space, or set HEADRACE_STATE=/other/folder"
        return Check("state folder", "fault", f"{state}: {error.strerror}", fix)
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    free = shutil.disk_usage(state).free
    found = f"{state}, {size_text(free)} free"
    fix = "free some space, or set HEADRACE_STATE=/other/folder"
    if free < SPACE_NEEDED:
        return Check("state folder", "fault", found, fix)
    return (
        Check("state folder", "warning", found, fix)
        if free < SPACE_WANTED
        else Check("state folder", "ok", found)
    )


def check_java() -> Check:
    """Whether there is a Java that Spark can run on."""
    from headrace.engines.java import find_java

    java = find_java()
    return Check("java", "ok", f"Java {java.version} from {java.source}: {java.home}")


def check_jars() -> Check:
    """Whether Spark's extra JARs are in the cache."""
    from headrace.engines.jars import jars_folder, missing_jars

    missing = missing_jars()
    if missing:
        names = ", ".join(str(jar) for jar in missing)
        fix = "python -m headrace.engines.jars (needs a network, once)"
        return Check("jars", "warning", f"not in {jars_folder()}: {names}", fix)
    return Check("jars", "ok", str(jars_folder()))


def machine_memory() -> tuple[int, int]:
    """Memory of this machine, or of this container, in bytes: all of it, and what is free."""
    import psutil

    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    with suppress(OSError, ValueError):
        cgroup = Path("/sys/fs/cgroup")
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        total, free = min(total, limit), min(free, limit - used)
    return total, free


def check_memory(environment: Environment) -> Iterator[Check]:
    """Whether each local profile fits on this machine."""
    total, free = machine_memory()
    cores = os.cpu_count() or 1
    fine = True
    for profile in environment.profiles.values():
        name, wanted = f"profile {profile.name}", profile.memory_mib * 1024**2
        if profile.where != "local":
            continue
        if wanted > total:
            found = (
                f"memory = {format_memory(profile.memory_mib)}, the machine has {size_text(total)}"
            )
            yield Check(name, "fault", found, f"lower profiles.{profile.name}.memory")
            fine = False
        elif wanted > free:
            found = f"memory = {format_memory(profile.memory_mib)}, {size_text(free)} is free now"
            yield Check(name, "warning", found, "end other programs, or lower it")
            fine = False
        if profile.cores > cores:
            found = f"cores = {profile.cores}, the machine has {cores}"
            yield Check(name, "warning", found, f"set profiles.{profile.name}.cores = {cores}")
            fine = False
    if fine:
        yield Check("memory", "ok", f"{size_text(free)} of {size_text(total)} free, {cores} cores")


def check_shared_memory(environment: Environment) -> Check:
    """Whether `/dev/shm` holds Ray's object store; Ray falls back to slow disk files without it."""
    folder = SHARED_MEMORY
    if not folder.is_dir():
        return Check("shared memory", "ok", f"no {folder} on this system; Ray uses another way")
    free = shutil.disk_usage(folder).free
    stores = [getattr(p, "object_store_mib", None) or 0 for p in environment.profiles.values()]
    found = f"{folder} has {size_text(free)} free"
    if max(stores, default=0) * 1024**2 > free:
        wanted = format_memory(max(stores))
        fix = (
            f"give it at least {wanted} (Docker: --shm-size={wanted}), or lower object_store_memory"
        )
        return Check("shared memory", "warning", found, fix)
    return Check("shared memory", "ok", found)


def check_open_files() -> Check:
    """Whether this process may open the many files that Ray's workers need."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_WANTED:
        return Check("open files", "warning", f"at most {soft}", f"ulimit -n {FILES_WANTED}")
    return Check("open files", "ok", f"at most {soft}")
