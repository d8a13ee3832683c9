"""Engines that a run's tasks share: started ahead, a failure told to who asks, nothing left."""

from __future__ import annotations

import os

import pytest

from headrace import python_task
from headrace.exceptions import EngineStartError
from headrace.orchestration.project import Project
from headrace.orchestration.shared_engines import SharedEngines
from headrace.orchestration.tasks import named_tasks
from headrace.profiles.load import load_environment
from headrace.profiles.models import PythonProfile, RayProfile, SparkProfile
from tests.orchestration.conftest import command_lines


@python_task
def count_up() -> int:
    return 1


@python_task
def double(number: int) -> int:
    return 2 * number


def flow_with_two_steps():
    return double(count_up())


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    profiles = tmp_path / "infra" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "local.toml").write_text('[profiles.python]\nengine = "python"\n')
    environment = load_environment(root=tmp_path)
    return Project(root=tmp_path, state=tmp_path / ".headrace", environment=environment)


def test_the_tasks_that_a_pipeline_names_are_known_before_it_runs():
    assert named_tasks(flow_with_two_steps) == [double, count_up]


def test_a_profile_that_shares_nothing_starts_nothing(project, tmp_path):
    alone = SparkProfile(name="etl", cores=1, memory_mib=1024)
    plain = PythonProfile(name="python", cores=1, memory_mib=512)
    with SharedEngines(project, tmp_path / "shared") as engines:
        engines.prepare([alone, plain])
        assert engines.address(alone) is None
        assert engines.address(plain) is None
    assert not (tmp_path / "shared").exists()


@pytest.mark.spark
def test_a_start_that_fails_is_told_to_each_task_that_asks(project, tmp_path):
    conf = {"spark.master": "nowhere://"}
    profile = SparkProfile(name="etl", cores=1, memory_mib=1024, reuse="run", spark_conf=conf)
    with SharedEngines(project, tmp_path / "shared") as engines:
        engines.prepare([profile])
        for _ in range(2):
            with pytest.raises(EngineStartError, match="did not start"):
                engines.address(profile)


@pytest.mark.ray
def test_a_run_that_ends_during_the_start_leaves_no_process(project, tmp_path):
    profile = RayProfile(name="train", cores=1, memory_mib=1024, reuse="run")
    with SharedEngines(project, tmp_path / "shared") as engines:
        engines.prepare([profile])
    assert not [line for line in command_lines(os.getpid()) if "headrace.engines._host" in line]
