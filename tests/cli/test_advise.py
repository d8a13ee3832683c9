from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake


@pytest.fixture
def flights(project):
    file = project / "infra" / "profiles" / "local.toml"
    file.write_text(
        file.read_text() + '\n[profiles.roomy]\nengine = "python"\ncores = 2\nmemory = "1GiB"\n'
    )
    rows = pa.table({"carrier": ["AA"] * 9 + ["DL"], "delay": [1.0] * 10})
    write_deltalake(project / ".headrace" / "lake" / "flights", rows, partition_by=["carrier"])


def test_advise_tells_the_engine_and_why(headrace, flights):
    shown = headrace("advise", "flights", "--for", "score")
    assert shown.exit_code == 0
    assert "score flights@v0: one process" in shown.stdout
    assert "10 rows in 2 columns" in shown.stdout
    found = json.loads(headrace("advise", "flights", "--by", "carrier", "--json").stdout)
    assert (found["engine"], found["one_node"], found["table"]["groups"]) == ("python", True, 2)


def test_advise_refuses_what_it_does_not_know(headrace, flights):
    assert headrace("advise", "flights", "--for", "fly").exit_code == 2
    assert headrace("advise", "flights", "--profile", "none").exit_code == 2
    assert headrace("advise", "nothing").exit_code == 2
