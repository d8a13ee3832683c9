"""Checks of clusters and of the store: reached, the right versions, the rights that a run needs."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headrace.cli.check import Check

if TYPE_CHECKING:
    from headrace.profiles.models import Environment, RayProfile, SparkProfile

TIMEOUT_S: Final = 5
_PORTS: Final = {"sc": 15002, "spark": 7077, "https": 443, "http": 80}


def check_clusters(environment: Environment) -> Iterator[Check]:
    """Whether each cluster that profiles name is reached and fits this installation."""
    from headrace.profiles.models import RayProfile, SparkProfile

    seen: set[str] = set()
    for profile in environment.profiles.values():
        if not isinstance(profile, SparkProfile | RayProfile) or profile.where == "local":
            continue
        address = profile.reveal_address() or ""
        if address in seen:
            continue
        seen.add(address)
        name = f"{profile.engine} {profile.where}"
        if isinstance(profile, RayProfile):
            yield _check_ray(name, profile, address, environment.root)
        else:
            yield _check_spark(name, profile, address)


def _check_spark(name: str, profile: SparkProfile, address: str) -> Check:
    parts = urlsplit(address.removeprefix("k8s://"))
    if not parts.hostname:
        return Check(name, "ok", f"{address}: nothing to ask before a session starts")
    # Without what follows the port: a token may stand there.
    host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme, 443)
    shown = f"{parts.scheme}://{host}:{port}"
    problem = _closed(host, port)
    if problem:
        fix = "start the cluster, or correct the address (`headrace profiles show` tells where)"
        return Check(name, "fault", f"{shown} does not answer ({problem})", fix)
    if profile.where != "connect":
        return Check(name, "ok", f"{shown} answers; versions are compared when a session starts")
    found = _connect_version(address)
    return _compared(name, shown, "pyspark", found)


def _connect_version(address: str) -> str:
    from headrace.engines.spark import open_spark
    from headrace.profiles.models import SparkProfile

    with open_spark(SparkProfile(name="doctor"), address=address) as session:
        return str(session.version)


def _check_ray(name: str, profile: RayProfile, address: str, root: Path) -> Check:
    from headrace.engines.job_api import JobApi
    from headrace.exceptions import EngineStartError
    from headrace.profiles.secrets import resolve_secret

    if profile.where != "job":
        return Check(name, "ok", f"{address}: asked when a task starts")
    token = ""
    if profile.token is not None:
        wanted_by = f"profiles.{profile.name}.token"
        token = resolve_secret(profile.token, root=root, wanted_by=wanted_by).get_secret_value()
    api = JobApi(address, token, patience_s=TIMEOUT_S)
    try:
        version = api.version()
        api.jobs()
    except EngineStartError as error:
        fix = "start the cluster, or correct address and token"
        return Check(name, "fault", f"{address}: {error.reason}", fix)
    return _compared(name, address, "ray", version)


def _compared(name: str, address: str, package: str, there: str) -> Check:
    here = metadata.version(package)
    if here == there:
        return Check(name, "ok", f"{address} answers, {package} {there}")
    fix = f"pip install '{package}=={there}', or bring the cluster to {here}"
    return Check(name, "fault", f"{address} has {package} {there}, this machine {here}", fix)


def check_rights(environment: Environment) -> Iterator[Check]:
    """Whether the lake's store can be read, written, and written only if there is nothing yet."""
    from headrace.delta.conditional_put import put_if_absent
    from headrace.delta.location import filesystem_path, open_filesystem

    if environment.storage.kind != "s3" or not environment.lake.startswith("s3://"):
        return
    storage = environment.storage.fresh()
    uri = f"{environment.lake}/_headrace/doctor-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    path = filesystem_path(uri)
    filesystem = open_filesystem(uri, storage)
    try:
        first, second = (put_if_absent(storage, path, text) for text in (b"first", b"second"))
    except OSError as error:
        text = str(error).replace(path, "an object of the lake")
        yield Check("lake rights", "fault", text, "let these credentials write below the lake")
        return
    with filesystem.open_input_stream(path) as stream:
        kept = stream.read()
    filesystem.delete_file(path)
    if not first or second or kept != b"first":
        found = "the store puts an object although there is one (If-None-Match is ignored)"
        fix = (
            "use a store with conditional writes; commits of two writers would be lost on this one"
        )
        yield Check("lake rights", "fault", found, fix)
    else:
        yield Check("lake rights", "ok", "read, write, conditional write, delete")


def _closed(host: str, port: int) -> str:
    """Why nothing answers at a port, or an empty text."""
    try:
        socket.create_connection((host, port), timeout=TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
