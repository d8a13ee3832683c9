"""Every wrong value in an environment file: the place, the key, what is right, what to write."""

from __future__ import annotations

import pickle
import re

import pytest

from headrace.exceptions import (
    EnvironmentNotFoundError,
    ProfileError,
    SecretError,
    UnknownKeyError,
)
from headrace.profiles.load import load_environment

ETL = '[profiles.etl]\nengine = "spark"\n'
S3 = '[storage]\nkind = "s3"\n'
MEMORY_UNITS = "Units: KiB, MiB, GiB, TiB (also k, m, g, t; KB, MB, GB, TB are powers of 1000)."

WRONG_VALUES = {
    "memory without a unit": (
        ETL + "memory = 2048\n",
        (3, "profiles.etl.memory: 2048 has no unit.", MEMORY_UNITS, 'memory = "2048MiB"'),
    ),
    "memory in quotes without a unit": (
        ETL + 'memory = "2048"\n',
        (3, "profiles.etl.memory: '2048' has no unit.", MEMORY_UNITS, 'memory = "2048MiB"'),
    ),
    "memory in an unknown unit": (
        ETL + 'memory = "2 gigs"\n',
        (
            3,
            "profiles.etl.memory: '2 gigs' has the unknown unit 'gigs'.",
            MEMORY_UNITS,
            'memory = "2MiB"',
        ),
    ),
    "a time without a unit": (
        ETL + "timeout = 30\n",
        (3, "profiles.etl.timeout: 30 has no unit.", "Units: ms, s, m, h, d.", 'timeout = "30s"'),
    ),
    "a time in a unit of memory": (
        ETL + 'timeout = "30MiB"\n',
        (
            3,
            "profiles.etl.timeout: '30MiB' has the unknown unit 'MiB'.",
            "Units: ms, s, m, h, d.",
            'timeout = "30s"',
        ),
    ),
    "the object store without a unit": (
        '[profiles.train]\nengine = "ray"\nobject_store_memory = 256\n',
        (
            3,
            "profiles.train.object_store_memory: 256 has no unit.",
            MEMORY_UNITS,
            'object_store_memory = "256MiB"',
        ),
    ),
    "a number in quotes": (
        ETL + 'cores = "2"\n',
        (3, 'profiles.etl.cores: "2" is not a whole number.', "Expected: a whole number.", "cores = 2"),
    ),
    "half a core": (
        ETL + "cores = 1.5\n",
        (3, "profiles.etl.cores: 1.5 is not a whole number.", "Expected: a whole number.", "cores = 1"),
    ),
    "true for a number": (
        ETL + "cores = true\n",
        (3, "profiles.etl.cores: true is not a whole number.", "Expected: a whole number.", "cores = 1"),
    ),
    "no core": (
        ETL + "cores = 0\n",
        (3, "profiles.etl.cores: 0 is out of range.", "Allowed: at least 1.", "cores = 1"),
    ),
    "a negative price": (
        ETL + "price_per_hour = -1\n",
        (3, "profiles.etl.price_per_hour: -1 is out of range.", "Allowed: at least 0.", "price_per_hour = 0"),
    ),
    "a price in quotes": (
        ETL + 'price_per_hour = "0.5"\n',
        (3, 'profiles.etl.price_per_hour: "0.5" is not a number.', "Expected: a number.", "price_per_hour = 0.5"),
    ),
    "a port beyond all ports": (
        "[prefect]\nport = 70000\n" + ETL,
        (2, "prefect.port: 70000 is out of range.", "Allowed: at most 65535.", "port = 65535"),
    ),
    "a word that is nearly right": (
        ETL + 'reuse = "tasks"\n',
        (3, 'profiles.etl.reuse: "tasks" is not allowed.', "Allowed: task, run.", 'reuse = "task"'),
    ),
    "a place that there isn't": (
        ETL + 'where = "here"\n',
        (3, 'profiles.etl.where: "here" is not allowed.', "Allowed: local, standalone, connect, kubernetes, yarn, processes.", 'where = "kubernetes"'),
    ),
    "an engine that there isn't": (
        '[profiles.etl]\nengine = "sparc"\n',
        (2, "profiles.etl.engine: there is no engine 'sparc'.", "Engines: spark, ray, python.", 'engine = "spark"'),
    ),
    "no engine": (
        "[profiles.etl]\ncores = 1\n",
        (1, "profiles.etl.engine: the engine is missing.", "Engines: spark, ray, python.", 'add engine = "spark"'),
    ),
    "a number for a text": (
        ETL + "labels = { team = 7 }\n",
        (3, "profiles.etl.labels.team: 7 is not a text in quotes.", "Expected: a text in quotes.", 'team = "7"'),
    ),
    "a text for a table": (
        ETL + 'env = "A=1"\n',
        (3, 'profiles.etl.env: "A=1" is not a table.', "Expected: a table.", "env = {}"),
    ),
    "a text for true or false": (
        '[profiles.train]\nengine = "ray"\ndashboard = "true"\n',
        (3, 'profiles.train.dashboard: "true" is not true or false.', "Expected: true or false.", "dashboard = true"),
    ),
    "a variable that can't be one": (
        ETL + 'env = { "MY-VAR" = "1" }\n',
        (3, "profiles.etl.env: 'MY-VAR' can't be the name of an environment variable.", None, None),
    ),
    "a Spark setting that Spark would drop": (
        ETL + '[profiles.etl.spark_conf]\n"sql.shuffle.partitions" = 4\n',
        (3, "profiles.etl.spark_conf: 'sql.shuffle.partitions' is no Spark setting: they start with \"spark.\".", None, None),
    ),
    "more workers than cores": (
        ETL + "workers = 4\n",
        (1, "profiles.etl: workers = 4 need at least as many cores, not 1.", None, None),
    ),
    "bounds that contradict": (
        ETL + "max_workers = 1\nmin_workers = 2\n",
        (1, "profiles.etl: min_workers = 2 is more than workers = 1.", None, None),
    ),
    "an object store as large as the memory": (
        '[profiles.train]\nengine = "ray"\nobject_store_memory = "1GiB"\n',
        (1, "profiles.train: object_store_memory = 1GiB leaves nothing of memory = 1GiB.", None, None),
    ),
    "a profile that is no table": (
        "[profiles]\netl = 4\n",
        (2, "profiles.etl: 4 is not a table.", None, "write a header: [profiles.etl]"),
    ),
    "profiles that are no table": (
        "profiles = 4\n",
        (1, "profiles: 4 is not a table.", None, "write a header: [profiles.NAME]"),
    ),
    "a section that is no table": (
        'mlflow = "sqlite:///x.db"\n' + ETL,
        (1, 'mlflow: "sqlite:///x.db" is not a table.', None, "write a header: [mlflow]"),
    ),
    "extends names no profile": (
        ETL + '[profiles.b]\nextends = "elt"\n',
        (4, "profiles.b.extends: there is no profile 'elt'.", "Defined: etl.", 'extends = "etl"'),
    ),
    "extends goes round": (
        '[profiles.a]\nextends = "b"\n[profiles.b]\nextends = "a"\n',
        (4, "profiles.b.extends: a -> b -> a goes round in a circle.", None, "remove one `extends`"),
    ),
    "extends a profile of another engine": (
        ETL + '[profiles.b]\nextends = "etl"\nengine = "ray"\n',
        (5, "profiles.b.engine: 'b' is for ray, but extends 'etl', which is for another.", None, None),
    ),
    "a secret in the file": (
        S3 + 'secret_key = "hunter2"\n' + ETL,
        (
            3,
            "storage.secret_key: a secret stands in the file.",
            "Secrets are given by reference, so that the file can be in git.",
            'secret_key = { env = "HEADRACE_STORAGE_SECRET_KEY" }, or secret_key = { file = "path" }',
        ),
    ),
    "a password in an address": (
        'ledger_url = "postgresql://me:hunter2@db/ledger"\n' + ETL,
        (
            1,
            "ledger_url: a password stands in the file.",
            "Secrets are given by reference, so that the file can be in git.",
            'ledger_url = { env = "HEADRACE_LEDGER_URL" }, or ledger_url = { file = "path" }',
        ),
    ),
    "a secret in two places": (
        S3 + 'secret_key = { env = "A", file = "b" }\n' + ETL,
        (3, 'storage.secret_key: a secret is { env = "NAME" } or { file = "path" }, one of the two.', None, None),
    ),
    "one key of a pair": (
        S3 + 'access_key = { env = "PATH" }\n' + ETL,
        (1, "storage: access_key and secret_key go together.", None, None),
    ),
    "an endpoint without TLS": (
        S3 + 'endpoint = "http://127.0.0.1:7070"\n' + ETL,
        (1, "storage: endpoint = 'http://127.0.0.1:7070' has no TLS, and allow_http = false.", None, None),
    ),
    "an endpoint without a scheme": (
        S3 + 'endpoint = "127.0.0.1:7070"\n' + ETL,
        (1, "storage: endpoint = '127.0.0.1:7070' must start with \"https://\" or \"http://\".", None, None),
    ),
    "a command that is no list": (
        S3 + 'refresh_command = "get-keys"\n' + ETL,
        (3, 'storage.refresh_command: "get-keys" is not a list.', "Expected: a list.", 'refresh_command = ["get-keys"]'),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_VALUES)
def test_a_wrong_value_names_its_line_its_key_and_the_right_one(load, case):
    text, (line, what, found, fix) = WRONG_VALUES[case]
    with pytest.raises(ProfileError) as caught:
        load(text)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"infra/profiles/local.toml:{line}: {what}"
    if found is not None:
        assert lines[1] == found
    if fix is not None:
        assert lines[-1] == f"Fix: {fix}"
    assert "hunter2" not in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


UNKNOWN_KEYS = {
    "at the top": ('lack = "x"\n' + ETL, 1, "lack", "lake", 'lake = "x"'),
    "a section": ('[profile.etl]\nengine = "spark"\n', 1, "profile", "profiles", "[profiles]"),
    "in a profile": (ETL + "\n\ncoers = 2\n", 5, "profiles.etl.coers", "cores", "cores = 2"),
    "with a unit in its name": (
        ETL + "memory_gb = 2\n",
        3,
        "profiles.etl.memory_gb",
        "memory",
        "memory = 2",
    ),
    "the attribute's name": (
        ETL + "memory_mib = 2048\n",
        3,
        "profiles.etl.memory_mib",
        "memory",
        "memory = 2048",
    ),
    "of another engine": (
        ETL + "object_store_memory = 1\n",
        3,
        "profiles.etl.object_store_memory",
        None,
        "remove it",
    ),
    "in defaults": (
        '[defaults.spark]\ncorse = 2\n[profiles.etl]\nengine = "spark"\n',
        2,
        "profiles.etl.corse",
        "cores",
        "cores = 2",
    ),
    "an engine in defaults": (
        "[defaults.sparks]\n" + ETL,
        1,
        "defaults.sparks",
        "spark",
        "[defaults.spark]",
    ),
    "in mlflow": (
        '[mlflow]\ntracking_url = "x"\n' + ETL,
        2,
        "mlflow.tracking_url",
        "tracking_uri",
        'tracking_uri = "x"',
    ),
    "in prefect": ("[prefect]\nprot = 4200\n" + ETL, 2, "prefect.prot", "port", "port = 4200"),
    "in storage": (
        '[storage]\nendpiont = "http://x"\n' + ETL,
        2,
        "storage.endpiont",
        "endpoint",
        'endpoint = "http://x"',
    ),
    "in a secret": (
        S3 + 'secret_key = { envv = "A" }\n' + ETL,
        3,
        "storage.secret_key.envv",
        "env",
        'env = "A"',
    ),
}


@pytest.mark.parametrize("case", UNKNOWN_KEYS)
def test_an_unknown_key_names_its_line_and_the_closest_known_one(load, case):
    text, line, key, suggestion, fix = UNKNOWN_KEYS[case]
    with pytest.raises(UnknownKeyError) as caught:
        load(text)
    error = caught.value
    assert (error.origin, error.key) == (f"infra/profiles/local.toml:{line}", key)
    assert error.suggestion == suggestion
    assert error.fix == fix
    assert error.found.startswith("Known: ")


def test_a_secret_with_a_misspelt_reference_in_env_is_found_too(load):
    with pytest.raises(ProfileError, match=r"local\.toml:3: profiles\.etl\.env\.TOKEN"):
        load(ETL + 'env = { TOKEN = { envv = "A" } }\n')


def test_an_unknown_environment_names_those_there_are(load, project):
    load(ETL)
    with pytest.raises(EnvironmentNotFoundError) as caught:
        load_environment("lokal", root=project)
    assert str(caught.value).splitlines() == [
        "there is no environment 'lokal': no file infra/profiles/lokal.toml.",
        "Defined: local.",
        "Fix: add infra/profiles/lokal.toml, or use --env local (closest name)",
    ]


@pytest.mark.parametrize("name", ["../local", "a/b", "."])
def test_an_environment_can_not_be_a_path(load, project, name):
    load(ETL)
    with pytest.raises(EnvironmentNotFoundError):
        load_environment(name, root=project)


def test_a_missing_secret_names_the_key_and_where_it_should_be(load):
    with pytest.raises(
        SecretError,
        match=re.escape(
            "storage.access_key is kept in environment variable MY_KEY, but it is not set."
        ),
    ):
        load(S3 + 'access_key = { env = "MY_KEY" }\nsecret_key = { env = "MY_KEY" }\n' + ETL)
