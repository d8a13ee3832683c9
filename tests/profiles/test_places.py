"""Addresses of clusters: what they are, where they may come from, and that they don't show."""

from __future__ import annotations

import pytest

from headrace.exceptions import ProfileError, SecretError
from headrace.profiles.explain import explain_profile
from headrace.profiles.places import place_of

SPARK = '[profiles.etl]\nengine = "spark"\n'
RAY = '[profiles.train]\nengine = "ray"\n'


@pytest.mark.parametrize(
    ("engine", "address", "place"),
    [
        ("spark", "spark://one:7077,two:7077", "standalone"),
        ("spark", "sc://host:15002/;token=x", "connect"),
        ("spark", "k8s://https://host:443", "kubernetes"),
        ("spark", "yarn", "yarn"),
        ("spark", "local-cluster[2,1,1024]", "processes"),
        ("spark", "local[4]", None),
        ("ray", "http://host:8265", "job"),
        ("ray", "10.0.0.1:6379", "cluster"),
        ("ray", "auto", "cluster"),
        ("ray", "ray://host:10001", None),
        ("python", "host:1", None),
    ],
)
def test_an_address_tells_where_a_task_runs(engine, address, place):
    assert place_of(engine, address) == place


def test_a_profile_without_an_address_is_local_and_one_with_it_is_not(load):
    assert load(SPARK).profile("etl").where == "local"
    profile = load(SPARK + 'address = "spark://host:7077"\n').profile("etl")
    assert (profile.where, profile.reveal_address()) == ("standalone", "spark://host:7077")


def test_an_inherited_address_can_be_turned_off(load):
    text = '[defaults.spark]\naddress = "spark://host:7077"\n' + SPARK + 'where = "local"\n'
    profile = load(text).profile("etl")
    assert (profile.where, profile.reveal_address()) == ("local", None)


def test_an_address_with_a_token_comes_by_reference_and_does_not_show(load, monkeypatch):
    monkeypatch.setenv("CONNECT", "sc://host:15002/;token=hunter2")
    environment = load(SPARK + 'address = { env = "CONNECT" }\n')
    profile = environment.profile("etl")
    assert profile.where == "connect"
    assert profile.reveal_address() == "sc://host:15002/;token=hunter2"
    shown = [repr(profile), profile.model_dump_json(), str(explain_profile(environment, profile))]
    assert not any("hunter2" in text for text in shown)


def test_variables_go_over_the_defaults_of_an_engine(load, monkeypatch):
    monkeypatch.setenv("HEADRACE_SPARK_ADDRESS", "spark://inside:7077")
    monkeypatch.setenv("HEADRACE_RAY_ADDRESS", "http://inside:8265")
    monkeypatch.setenv("HEADRACE_RAY_TOKEN", "hunter2")
    text = '[defaults.spark]\naddress = { file = "nowhere", key = "X" }\n' + SPARK + RAY
    environment = load(text)
    assert environment.profile("etl").where == "standalone"
    train = environment.profile("train")
    assert train.where == "job"
    assert str(train.token) == "environment variable HEADRACE_RAY_TOKEN"
    assert "hunter2" not in train.model_dump_json()


def test_keys_of_the_storage_may_come_from_variables(load, monkeypatch):
    for name in ("ACCESS_KEY", "SECRET_KEY"):
        monkeypatch.setenv(f"HEADRACE_STORAGE_{name}", f"the-{name}")
    storage = load('[storage]\nkind = "s3"\n' + SPARK).storage
    assert storage.secret_key.get_secret_value() == "the-SECRET_KEY"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('where = "standalone"', '"standalone" needs an address'),
        ('where = "yarn"\naddress = "sc://host"', "contradict"),
        ('address = "local[4]"', "none that the engine knows"),
    ],
)
def test_a_wrong_address_is_refused_with_what_is_right(load, lines, said):
    with pytest.raises(ProfileError, match="spark://") as caught:
        load(SPARK + lines + "\n")
    assert said in str(caught.value)
    assert "local.toml:" in str(caught.value)


def test_an_address_that_can_t_be_fetched_says_so_unless_it_is_only_shown(load):
    with pytest.raises(SecretError, match="NO_SUCH"):
        load(SPARK + 'address = { env = "NO_SUCH" }\n')
    assert load(SPARK + 'address = { env = "NO_SUCH" }\n', resolve_secrets=False)
