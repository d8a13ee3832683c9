from __future__ import annotations

import pytest

from headrace.exceptions import SecretError
from headrace.profiles.secrets import SecretRef, resolve_secret

FILE = "# of the stack\nexport A=first\nB='sec ond'\nC=\n"


@pytest.mark.parametrize(
    ("ref", "secret"),
    [
        ({"env": "TOKEN"}, "from the variable"),
        ({"file": "token"}, "from the file"),
        ({"file": ".env", "key": "A"}, "first"),
        ({"file": ".env", "key": "B"}, "sec ond"),
    ],
)
def test_a_secret_is_fetched_from_where_the_reference_says(tmp_path, monkeypatch, ref, secret):
    monkeypatch.setenv("TOKEN", "from the variable")
    (tmp_path / "token").write_text("from the file\n")
    (tmp_path / ".env").write_text(FILE)
    found = resolve_secret(SecretRef(**ref), root=tmp_path, wanted_by="x")
    assert found.get_secret_value() == secret
    assert secret not in repr(found)


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        ({"env": "NOT_SET"}, "x is kept in environment variable NOT_SET, but it is not set"),
        ({"file": "none"}, "none, but No such file or directory"),
        ({"file": "."}, "but Is a directory"),
        ({"file": ".env", "key": "C"}, "C in file .env, but it is empty or missing"),
        ({"file": ".env", "key": "D"}, "D in file .env, but it is empty or missing"),
    ],
)
def test_a_secret_that_is_not_there_says_where_it_should_be(tmp_path, ref, reason):
    (tmp_path / ".env").write_text(FILE)
    with pytest.raises(SecretError) as caught:
        resolve_secret(SecretRef(**ref), root=tmp_path, wanted_by="x")
    assert reason in str(caught.value)
    assert "first" not in str(caught.value)


def test_a_tasks_variables_get_their_secrets_only_when_asked(load, project, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    environment = load(
        '[profiles.etl]\nengine = "spark"\nenv = { A = "1", TOKEN = { env = "MY_TOKEN" } }\n'
    )
    profile = environment.profiles["etl"]
    assert "hunter2" not in repr(environment) + environment.model_dump_json()
    assert profile.resolve_env(project) == {"A": "1", "TOKEN": "hunter2"}


def test_a_password_in_an_address_shows_nowhere(load, monkeypatch):
    monkeypatch.setenv("HEADRACE_LEDGER_URL", "postgresql://me:hunter2@db/ledger")
    environment = load('[profiles.etl]\nengine = "spark"\n')
    assert environment.ledger_url == "postgresql://me:hunter2@db/ledger"
    assert "hunter2" not in f"{environment!r} {environment}"
    assert "postgresql://me:***@db/ledger" in repr(environment)
