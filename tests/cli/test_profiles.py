from __future__ import annotations

import json

from headrace.ledger.records import Outcome
from headrace.ledger.store import open_ledger
from tests.ledger.conftest import Driver


def test_list_prints_each_profile(headrace):
    result = headrace("profiles", "list")
    assert result.exit_code == 0
    assert "local: infra/profiles/local.toml" in result.stdout
    assert [line.split()[:5] for line in result.stdout.splitlines()[3:]] == [
        ["etl", "spark", "local", "1", "64MiB"],
        ["tiny", "python", "local", "1", "64MiB"],
    ]


def test_list_prints_json_for_programs(headrace):
    profiles = json.loads(headrace("profiles", "list", "--json").stdout)
    assert [(p["name"], p["engine"], p["memory_mib"]) for p in profiles] == [
        ("etl", "spark", 64),
        ("tiny", "python", 64),
    ]


def test_show_tells_where_each_value_came_from(headrace, monkeypatch):
    monkeypatch.setenv("HEADRACE_PREFECT_PORT", "4299")
    result = headrace("profiles", "show", "etl", "--json", "--profile", "load=tiny")
    shown = json.loads(result.stdout)
    values = {value["key"]: (value["text"], value["origin"]) for value in shown["values"]}
    assert values["memory"] == ('"64MiB"', "infra/profiles/local.toml:6")
    assert values["cores"] == ("1", "default")
    assert values["timeout"] == ("-", "default")
    shared = {
        value["key"]: (value["text"], value["origin"]) for value in shown["environment_values"]
    }
    assert shared["mlflow.timeout"] == ('"1s"', "infra/profiles/local.toml:2")
    assert shared["prefect.port"] == ("4299", "HEADRACE_PREFECT_PORT")
    assert shared["storage.kind"] == ('"local"', "default")
    assert shared["--profile load"] == ("tiny", "this run")


def test_show_prints_a_table_for_people(headrace):
    lines = headrace("profiles", "show", "tiny").stdout.splitlines()
    assert lines[0] == "Profile tiny"
    assert ["memory", '"64MiB"', "infra/profiles/local.toml:10"] in [line.split() for line in lines]


def test_show_needs_no_secret_and_prints_none(headrace, project, monkeypatch):
    (project / "infra" / "profiles" / "s3.toml").write_text(
        'ledger_url = { env = "LEDGER" }\n'
        '[storage]\nkind = "s3"\naccess_key = { env = "KEY" }\nsecret_key = { env = "SECRET" }\n'
        '[profiles.etl]\nengine = "spark"\nenv = { A = "1", TOKEN = { file = "token" } }\n'
    )
    without = headrace("profiles", "show", "etl", "--env", "s3").stdout
    monkeypatch.setenv("SECRET", "hunter2")
    for text in (without, headrace("profiles", "show", "etl", "--env", "s3").stdout):
        assert "hunter2" not in text
        rows = [line.split(maxsplit=1) for line in text.splitlines()]
        found = {row[0]: row[1].rsplit(maxsplit=1)[0].strip() for row in rows if len(row) == 2}
        assert found["storage.secret_key"] == "(secret)"
        assert found["env.TOKEN"] == "(file token)"
        assert found["ledger_url"] == '"(environment variable LEDGER)"'


def test_an_unknown_profile_names_the_closest_and_ends_with_2(headrace):
    result = headrace("profiles", "show", "elt")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "ProfileNotFoundError: you ask for profile 'elt', which infra/profiles/local.toml does not define.",
        "Defined: etl, tiny.",
        'Fix: add [profiles.elt], or use profile="etl" (closest name).',
    ]


def test_a_profile_given_to_a_task_has_to_be_there(headrace):
    result = headrace("profiles", "show", "etl", "--profile", "load=tinny")
    assert result.exit_code == 2
    assert "task 'load' asks for profile 'tinny'" in result.stderr


def test_outside_a_project_the_error_says_how_to_make_one(headrace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = headrace("profiles", "list")
    assert result.exit_code == 2
    assert "Fix: run `headrace init NAME`" in result.stderr


def test_a_broken_file_is_one_clear_error(headrace, project):
    (project / "infra" / "profiles" / "local.toml").write_text("[profiles.etl\n")
    result = headrace("profiles", "list")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "ProfileError: infra/profiles/local.toml:1:14: this is not TOML"
    )


def test_advise_names_the_profile_whose_memory_is_nearly_used_up(headrace, project):
    used = {"wall_s": 600.0, "cpu_s": 590.0, "memory_mib_reserved": 64}
    with open_ledger(f"sqlite:///{project}/.headrace/ledger.db") as ledger:
        driver = Driver(ledger, environment="local")
        for profile, peak in (("etl", 40.0), ("tiny", 62.0)):
            attempt = driver.start("load", key=profile, profile=profile, limits={})
            usage = {**used, "peak_memory_mib": peak}
            ledger.finish_attempt(attempt.id, attempt.token, Outcome(state="success", usage=usage))
        driver.finish()
    [advice] = json.loads(headrace("profiles", "advise", "--json").stdout)
    assert (advice["profile"], advice["change"]) == ("tiny", 'memory = "256MiB"')
    assert "load used at most 62 MiB, 97% of what is reserved" in advice["found"]
    assert "2 attempts since 30d" in headrace("profiles", "advise").stdout
