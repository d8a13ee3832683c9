from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.exceptions import ProfileEngineError, ProfileError, ProfileNotFoundError
from headrace.profiles.load import load_environment
from headrace.profiles.models import Environment, PythonProfile, RayProfile, SparkProfile
from headrace.profiles.overrides import parse_task_profiles
from headrace.profiles.secrets import mask_password

SMALL = '[profiles.etl]\nengine = "spark"\n[profiles.train]\nengine = "ray"\n[profiles.tiny]\nengine = "python"\n'


def test_a_file_with_nothing_but_engines_is_enough(load, project):
    environment = load(SMALL)
    assert environment.name == "local"
    assert environment.root == project
    assert environment.lake == str(project / ".headrace" / "lake")
    assert environment.ledger_url == f"sqlite:///{project}/.headrace/ledger.db"
    assert environment.mlflow.tracking_uri == f"sqlite:///{project}/.headrace/mlflow.db"
    assert environment.mlflow.artifact_root == str(project / ".headrace" / "mlartifacts")
    assert environment.prefect.api_url is None
    assert environment.profiles["etl"] == SparkProfile(name="etl")
    assert environment.profiles["train"] == RayProfile(name="train")
    assert environment.profiles["tiny"] == PythonProfile(name="tiny")


def test_the_environment_of_the_repository_loads(pytestconfig):
    environment = load_environment("local", root=pytestconfig.rootpath)
    assert {"spark", "ray", "python"} <= environment.profiles.keys()


def test_every_key_of_a_profile_is_read(load):
    environment = load(
        """
        [profiles.big]
        engine = "ray"
        where = "local"
        cores = 8
        memory = "1536MiB"
        workers = 4
        min_workers = 1
        max_workers = 16
        gpus = 2
        env = { OMP_NUM_THREADS = "1" }
        reuse = "run"
        timeout = "1.5h"
        price_per_hour = 0.5
        labels = { team = "delays" }
        resources = { big_disk = 1 }
        object_store_memory = "512MiB"
        dashboard = true
        """
    )
    assert environment.profiles["big"] == RayProfile(
        name="big",
        cores=8,
        memory_mib=1536,
        workers=4,
        min_workers=1,
        max_workers=16,
        gpus=2.0,
        env={"OMP_NUM_THREADS": "1"},
        reuse="run",
        timeout_s=5400.0,
        price_per_hour=0.5,
        labels={"team": "delays"},
        resources={"big_disk": 1.0},
        object_store_mib=512,
        dashboard=True,
    )


def test_spark_settings_may_be_quoted_or_nested_and_of_any_simple_type(load):
    environment = load(
        """
        [profiles.etl]
        engine = "spark"
        [profiles.etl.spark_conf]
        spark.sql.shuffle.partitions = 4
        "spark.sql.ansi.enabled" = true
        "spark.sql.session.timeZone" = "UTC"
        """
    )
    assert environment.profiles["etl"].spark_conf == {
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }


def test_defaults_and_extends_lie_under_the_profiles_own_keys(load):
    environment = load(
        """
        [defaults.spark]
        cores = 2
        memory = "1GiB"
        spark_conf = { "spark.a" = "defaults", "spark.b" = "defaults" }
        [profiles.base]
        engine = "spark"
        memory = "2GiB"
        spark_conf = { "spark.b" = "base", "spark.c" = "base" }
        [profiles.etl]
        extends = "base"
        spark_conf = { "spark.c" = "etl" }
        """
    )
    etl = environment.profiles["etl"]
    assert (etl.cores, etl.memory_mib) == (2, 2048)
    assert etl.spark_conf == {"spark.a": "defaults", "spark.b": "base", "spark.c": "etl"}
    origins = environment.origins
    assert str(origins["profiles.etl.cores"]) == "infra/profiles/local.toml:3"
    assert str(origins["profiles.etl.memory"]) == "infra/profiles/local.toml:8"
    assert str(origins["profiles.etl.spark_conf.spark.c"]) == "infra/profiles/local.toml:12"
    assert str(origins["profiles.etl.spark_conf.spark.b"]) == "infra/profiles/local.toml:9"
    assert str(origins["profiles.etl.spark_conf.spark.a"]) == "infra/profiles/local.toml:5"
    assert "profiles.etl.gpus" not in origins


def test_headrace_state_moves_the_state_and_nothing_else(load, project, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "elsewhere"))
    environment = load('lake = "data/lake"\n' + SMALL)
    assert environment.lake == str(project / "data" / "lake")
    assert environment.ledger_url == f"sqlite:///{tmp_path}/elsewhere/ledger.db"
    assert not (tmp_path / "elsewhere").exists()


def test_addresses_stay_as_they_are(load):
    environment = load(
        'lake = "s3://bucket/lake/"\n[mlflow]\ntracking_uri = "http://127.0.0.1:5000"\n' + SMALL
    )
    assert environment.lake == "s3://bucket/lake"
    assert environment.mlflow.tracking_uri == "http://127.0.0.1:5000"


def test_the_environment_is_chosen_by_name_then_variable_then_local(load, project, monkeypatch):
    load(SMALL)
    (project / "infra" / "profiles" / "compose.toml").write_text(SMALL)
    assert load_environment(root=project).name == "local"
    monkeypatch.setenv("HEADRACE_ENV", "compose")
    assert load_environment(root=project).name == "compose"
    assert load_environment("local", root=project).name == "local"


def test_variables_and_overrides_win_over_the_file_and_say_so(load, monkeypatch):
    monkeypatch.setenv("HEADRACE_LAKE", "/other/lake")
    monkeypatch.setenv("HEADRACE_PREFECT_PORT", "4299")
    text = 'lake = "here"\n[prefect]\nport = 4200\n' + SMALL
    environment = load(text, overrides={"profiles.etl.memory": "3GiB", "mlflow.timeout": "1s"})
    assert environment.lake == "/other/lake"
    assert environment.prefect.port == 4299
    assert environment.profiles["etl"].memory_mib == 3072
    assert environment.mlflow.timeout_s == 1
    assert str(environment.origins["lake"]) == "HEADRACE_LAKE"
    assert str(environment.origins["prefect.port"]) == "HEADRACE_PREFECT_PORT"
    assert str(environment.origins["profiles.etl.memory"]) == "override"


def test_an_error_in_a_variable_names_the_variable(load, monkeypatch):
    monkeypatch.setenv("HEADRACE_PREFECT_PORT", "many")
    with pytest.raises(
        ProfileError, match=r'^HEADRACE_PREFECT_PORT: prefect\.port: "many" is not a whole'
    ):
        load(SMALL)


def test_profiles_per_task_come_from_the_variable_and_the_option_over_it(load, monkeypatch):
    monkeypatch.setenv("HEADRACE_PROFILES", "load=tiny, score=train")
    environment = load(SMALL, profiles={"score": "tiny"})
    assert environment.task_profiles == {"load": "tiny", "score": "tiny"}
    assert environment.profile("etl", task="load").name == "tiny"
    assert environment.profile("etl", task="other").name == "etl"
    assert environment.profile("etl").name == "etl"


def test_an_unknown_profile_reads_as_the_design_shows():
    environment = Environment(
        name="local",
        source="/p/infra/profiles/local.toml",
        root="/p",
        profiles={
            "etl": SparkProfile(name="etl"),
            "train": RayProfile(name="train"),
            "tiny": PythonProfile(name="tiny"),
        },
    )
    with pytest.raises(ProfileNotFoundError) as caught:
        environment.profile("ray-large", task="build_features")
    assert str(caught.value) == (
        "task 'build_features' asks for profile 'ray-large', which infra/profiles/local.toml does not define.\n"
        "Defined: etl, train, tiny.\n"
        'Fix: add [profiles.ray-large], or use profile="train" (closest name).'
    )


def test_an_override_to_an_unknown_profile_is_refused_at_once(load):
    with pytest.raises(ProfileNotFoundError, match="task 'load' asks for profile 'tinny'"):
        load(SMALL, profiles={"load": "tinny"})


def test_a_profile_of_another_engine_is_refused_with_those_that_fit(load):
    environment = load(SMALL)
    with pytest.raises(ProfileEngineError) as caught:
        environment.profile("train", task="load", engine="spark")
    assert str(caught.value).splitlines() == [
        "task 'load' needs a spark profile, but 'train' is for ray (infra/profiles/local.toml).",
        "Profiles for spark: etl.",
        'Fix: use profile="etl"',
    ]


def test_environments_and_profiles_survive_json_and_pickle(load):
    environment = load(SMALL)
    assert Environment.model_validate_json(environment.model_dump_json()) == environment
    assert pickle.loads(pickle.dumps(environment)) == environment


@pytest.mark.parametrize("text", ["etl", "=etl", "load=", "load==", "a=b,c"])
def test_a_profile_per_task_without_both_names_is_refused(text):
    if text == "load==":
        assert parse_task_profiles([text], source="--profile") == {"load": "="}
        return
    with pytest.raises(ProfileError, match=r"is not TASK=PROFILE"):
        parse_task_profiles([text], source="--profile")


NAMES = st.text("abcdefghij_-", min_size=1, max_size=8)


@given(st.dictionaries(NAMES, NAMES, max_size=6))
def test_profiles_per_task_come_back_from_their_text(pairs):
    text = ",".join(f"{task}={profile}" for task, profile in pairs.items())
    assert parse_task_profiles([text], source="x") == pairs


def test_passwords_in_addresses_are_masked():
    assert mask_password("postgresql+psycopg://me:s3cr:et@host:5432/db") == (
        "postgresql+psycopg://me:***@host:5432/db"
    )
    assert mask_password("http://127.0.0.1:4200/api") == "http://127.0.0.1:4200/api"
