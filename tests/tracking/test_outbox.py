"""What MLflow could not take is kept, in order, and sent once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tables import TableRef
from headrace.tracking.outbox import Outbox
from headrace.tracking.records import MAX_PARAM_CHARS, RunLog, flat_params
from headrace.tracking.tracker import Tracker


def log(name: str) -> RunLog:
    return RunLog(mlflow_run_id="r1", tags={"name": name}, time_ms=1)


def test_kept_records_are_sent_in_order_and_removed(tmp_path):
    outbox, sent = Outbox(tmp_path / "outbox"), []
    for name in "abc":
        outbox.keep(log(name))
    assert outbox.flush(sent.append) == 3
    assert [record.tags["name"] for record in sent] == ["a", "b", "c"]
    assert outbox.waiting() == []


def test_a_clock_that_is_set_back_changes_no_order(tmp_path, monkeypatch):
    outbox, sent = Outbox(tmp_path), []
    moments = iter([5_000_000_000, 1_000_000_000, 2_000_000_000])
    monkeypatch.setattr("headrace.tracking.outbox.time.time_ns", lambda: next(moments))
    for name in "abc":
        outbox.keep(log(name))
    outbox.flush(sent.append)
    assert [record.tags["name"] for record in sent] == ["a", "b", "c"]


def test_a_record_that_fails_stays_with_all_after_it(tmp_path):
    outbox, sent = Outbox(tmp_path), []
    for name in "abc":
        outbox.keep(log(name))

    def send(record):
        if record.tags["name"] == "b":
            raise OSError("no server")
        sent.append(record)

    assert outbox.flush(send) == 1
    assert len(outbox.waiting()) == 2


def test_a_half_written_record_is_not_taken_for_a_whole_one(tmp_path):
    outbox = Outbox(tmp_path)
    (tmp_path / ".0001-x.json.partial").write_text('{"mlflow_run_id": "r')
    assert outbox.waiting() == []
    assert Outbox(tmp_path / "never made").waiting() == []


def test_a_server_that_goes_away_in_the_middle_costs_a_bounded_time_and_no_record(tmp_path):
    tracker = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}", outbox=tmp_path / "outbox")
    run_id = tracker.start_run("e", "first", params={"seed": "7"})
    client = tracker._client

    class Gone:
        def __getattr__(self, name):
            raise ConnectionError("the server is gone")

    tracker._client = Gone()
    assert tracker.send(RunLog(mlflow_run_id=run_id, metrics={"rmse": 2.0}, time_ms=5)) is False
    assert tracker.start_run("e", "second") is None
    tracker._client = client
    assert tracker.flush() == 1
    run = client.get_run(run_id)
    assert (run.data.params, run.data.metrics) == ({"seed": "7"}, {"rmse": 2.0})


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=20),
            lambda inner: st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3),
        ),
        max_size=5,
    )
)
def test_flat_params_are_short_strings(values):
    flat = flat_params(values)
    assert all(isinstance(value, str) and len(value) <= MAX_PARAM_CHARS for value in flat.values())
    assert len(flat) >= len(values) or any("." in name for name in values)


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        ({"a": {"b": 1, "c": {"d": 2}}}, {"a.b": "1", "a.c.d": "2"}),
        ({"a": {}}, {"a": "{}"}),
        ({"a": "x" * 9000}, {"a": "x" * MAX_PARAM_CHARS}),
        (
            {"t": TableRef(uri="/lake/t", version=3, schema_hash="h", name="t")},
            {"t": "t@v3"},
        ),
    ],
)
def test_nested_parameters_get_dotted_names(value, flat):
    assert flat_params(value) == flat
