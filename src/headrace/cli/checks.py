"""What `headrace doctor` checks, in order; each check tells what it found and how to mend it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.check import Check
from headrace.cli.cluster_checks import check_clusters, check_rights
from headrace.cli.machine_checks import (
    check_engine_packages,
    check_jars,
    check_java,
    check_memory,
    check_names,
    check_open_files,
    check_packages,
    check_python,
    check_shared_memory,
    check_state,
)
from headrace.cli.service_checks import (
    check_clock,
    check_lake,
    check_ledger,
    check_mlflow,
    check_prefect,
)
from headrace.exceptions import HeadraceError
from headrace.profiles.load import load_environment
from headrace.profiles.project import state_dir
from headrace.profiles.secrets import mask_password

if TYPE_CHECKING:
    from headrace.profiles.models import Environment


def run_checks(env: str | None = None) -> Iterator[Check]:
    """Run the checks, one after another; each is reported as soon as it is done.

    Args:
        env: The environment to check.
    """
    yield check_python()
    yield from check_packages()
    try:
        environment = load_environment(env)
    except HeadraceError as error:
        yield of_error("environment", error)
        return
    yield Check("environment", "ok", f"{environment.name}: {environment.file}")
    yield from check_names(environment.root)
    try:
        state = state_dir(environment.root)
    except HeadraceError as error:
        yield of_error("state folder", error)
        return
    yield from _checks(environment, state)


def _checks(environment: Environment, state: Path) -> Iterator[Check]:
    engines = {profile.engine for profile in environment.profiles.values()}
    yield check_state(state)
    yield from check_engine_packages(engines)
    if "spark" in engines:
        yield _safely("java", check_java)
        yield _safely("jars", check_jars)
    yield from check_memory(environment)
    if "ray" in engines:
        yield check_shared_memory(environment)
        yield check_open_files()
    yield _safely("prefect", lambda: check_prefect(environment, state))
    yield _safely("mlflow", lambda: check_mlflow(environment))
    yield _safely("ledger", lambda: check_ledger(environment))
    yield _safely("lake", lambda: check_lake(environment))
    yield from _safely_all("lake rights", lambda: check_rights(environment))
    yield from _safely_all("clusters", lambda: check_clusters(environment))
    yield check_clock(environment, state)


def of_error(name: str, error: HeadraceError) -> Check:
    """An error of ours as the outcome of a check."""
    what, *rest = str(error).splitlines()
    fix = rest.pop().removeprefix("Fix: ") if rest and rest[-1].startswith("Fix: ") else ""
    return Check(name, "fault", " ".join([what, *rest]), fix)


def _safely_all(name: str, checks: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    found: list[Check] = []

    def collect() -> Check:
        found.extend(checks())
        return Check(name, "ok", "")

    ended = _safely(name, collect)
    yield from found
    if ended.state != "ok":
        yield ended


def _safely(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except HeadraceError as error:
        return of_error(name, error)
    except Exception as error:
        if os.environ.get("HEADRACE_DEBUG") == "1":
            raise
        # One broken check must not hide the others.
        text = mask_password(str(error).strip()) or type(error).__name__
        return Check(name, "fault", text.splitlines()[0], "see `headrace --debug doctor`")
