"""One engine for all tasks of a run (`reuse = "run"`): a Ray cluster or a Spark Connect server."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from headrace.engines.cache import short_folder
from headrace.engines.log_tail import log_end
from headrace.engines.outcome import rebuild_error
from headrace.engines.private_file import write_private
from headrace.engines.ray_environment import ray_environment
from headrace.engines.spec import (
    ALIVE_FILE,
    LOG_FILE,
    RESULT_FILE,
    SECRETS_FILE,
    SPEC_FILE,
    reveal_storage,
)
from headrace.engines.supervised import Supervised
from headrace.engines.usage import Usage
from headrace.exceptions import EngineStartError
from headrace.profiles.models import RayProfile, SparkProfile
from headrace.profiles.storage import Storage

_log = logging.getLogger("headrace.engines")

_TICK_S: Final = 0.2
_SAMPLE_S: Final = 1.0


class SharedSpec(BaseModel):
    """What the host process of a shared engine needs to know.

    Attributes:
        profile: The engine's profile.
        storage: Credentials of the lake. They travel in a file of their own.
        root: The project's root.
        folder: Folder for this file and the log.
        grace_s: How long the processes may take to end by themselves.
        lease_s: How long the flow's process may stand still before the engine ends itself.
        scratch: Temporary folder with a short path.
        flow_pid: The flow's process.
        marker: What marks the engine's processes in their environment.
    """

    model_config = ConfigDict(extra="forbid")

    profile: SparkProfile | RayProfile = Field(discriminator="engine")
    storage: Storage = Field(default_factory=Storage, exclude=True)
    root: Path
    folder: Path
    grace_s: float = 5.0
    lease_s: float | None = None
    scratch: Path | None = None
    flow_pid: int = 0
    marker: str = Field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def read(cls, path: Path) -> SharedSpec:
        """Read a spec, and take its secrets away from the disk."""
        spec = cls.model_validate_json(path.read_bytes())
        secrets = path.with_name(SECRETS_FILE)
        spec.storage = Storage.model_validate_json(secrets.read_bytes())
        secrets.unlink()
        return spec


class SharedEngine:
    """A running engine.

    Attributes:
        address: What `AttemptSpec.address` takes. It may hold a token: don't print it.
        usage: What the engine used, as seen last; the tasks' own processes are not part of it.
    """

    def __init__(self, tree: Supervised, profile: SparkProfile | RayProfile, address: str) -> None:
        self.address = address
        self.usage = Usage()
        self._tree = tree
        self._profile = profile
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headrace-shared", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching it."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self.usage = self._tree.sample()
            limit_mib = self._profile.memory_mib
            if self.usage.memory_mib > limit_mib:
                _log.error(
                    "the shared engine of profile %r used %d MiB of %d MiB and was ended (%s): "
                    "raise `memory` of [profiles.%s]",
                    self._profile.name,
                    self.usage.memory_mib,
                    limit_mib,
                    self._tree.largest,
                    self._profile.name,
                )
                self._tree.end(grace_s=0)
                return


@contextmanager
def open_shared(
    profile: SparkProfile | RayProfile,
    *,
    root: Path,
    folder: Path,
    storage: Storage | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 300,
    cancel: threading.Event | None = None,
) -> Iterator[SharedEngine]:
    """Start an engine that several tasks use one after another or at once, and end it.

    It ends with the block, and with the flow's process however that ends.

    Args:
        profile: Its size: the tasks share its cores and memory.
        root: The project's root.
        folder: Folder for its log.
        storage: Credentials of the lake.
        env: Further environment variables; the profile's own are added.
        timeout_s: How long the start may take.
        cancel: Ends the wait for the start.

    Raises:
        EngineStartError: It did not start in time.
        JavaNotFoundError, JarsUnavailableError: Spark can't start.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    spec = SharedSpec(profile=profile, storage=storage or Storage(), root=root, folder=folder)
    spec.scratch, spec.flow_pid = short_folder(), os.getpid()
    (folder / RESULT_FILE).unlink(missing_ok=True)
    (folder / ALIVE_FILE).touch()
    write_private(folder / SECRETS_FILE, json.dumps(reveal_storage(spec.storage)))
    write_private(folder / SPEC_FILE, spec.model_dump_json())
    tree = Supervised(
        folder=folder,
        root=root,
        scratch=spec.scratch,
        grace_s=spec.grace_s,
        marker=spec.marker,
    )
    try:
        engine_environment = ray_environment(new_process=True) if profile.engine == "ray" else {}
        wanted = {**engine_environment, **profile.resolve_env(root), **(env or {})}
        tree.start("headrace.engines._host", wanted)
        engine = SharedEngine(tree, profile, _await_address(tree, spec, timeout_s, cancel))
        try:
            yield engine
        finally:
            engine.close()
    finally:
        tree.end()
        shutil.rmtree(spec.scratch, ignore_errors=True)


def _await_address(
    tree: Supervised, spec: SharedSpec, timeout_s: float, cancel: threading.Event | None
) -> str:
    began = time.monotonic()
    reason = f"it was not ready within {timeout_s:g} s"
    while time.monotonic() - began < timeout_s:
        ended = tree.wait(_TICK_S)
        told = _read(spec.folder / RESULT_FILE)
        if told and told["ok"]:
            return str(told["address"])
        if told:
            error = rebuild_error(told)
            if error:
                raise error
            reason = f"{told['error_type']}: {told['error_message']}"
        if ended or told:
            reason = reason if told else "its process ended"
            break
        if cancel and cancel.is_set():
            reason = "the run ended before it was ready"
            break
    engine = "Ray" if spec.profile.engine == "ray" else "Spark Connect"
    raise EngineStartError(engine=engine, reason=reason, tail=log_end(spec.folder / LOG_FILE))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return told
