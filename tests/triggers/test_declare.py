from __future__ import annotations

from datetime import datetime

import pytest

from headrace import (
    continuous,
    cron,
    interval,
    on_files,
    on_pipeline,
    on_table,
    pipeline,
)
from headrace.exceptions import TriggerDefinitionError, UserError


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: cron("0 25 * * *"), "bad hour"),
        (lambda: cron("0 6 * *"), "4 fields instead of 5"),
        (lambda: cron("*/10 * * * * *"), "6 fields"),
        (lambda: cron("0 0 30 2 *"), "expression"),
        (lambda: cron("0 0 */2 * MON"), "read in two ways"),
        (lambda: cron("0 6 * * *", tz="Europe/Pariss"), 'tz="Europe/Paris"'),
        (lambda: cron("0 6 * * *", tz=""), "no time zone"),
        (lambda: cron("0 6 * * *", name="Nightly Run"), 'name="nightly-run"'),
        (lambda: interval(0), "whole number of seconds"),
        (lambda: interval(-5), "whole number of seconds"),
        (lambda: interval(0.5), "whole number of seconds"),
        (lambda: interval(hours=1, anchor=datetime(2024, 1, 1)), "no time zone"),  # noqa: DTZ001
        (on_table, "table name is missing"),
        (lambda: on_table("flights", " "), "table name is missing"),
        (lambda: on_table("flights", quiet_s=-1), "quiet_s=-1"),
        (lambda: on_table("flights", min_gap_s=float("nan")), "min_gap_s"),
        (lambda: on_table("flights", when="both"), "is not known"),
        (lambda: on_files("in/flights"), r'on_files\("in/flights/\*.csv"\)'),
        (lambda: on_files("s3://*/in.csv"), "bucket's name"),
        (lambda: on_files("in/*.csv", settle_s="5"), "settle_s"),
        (lambda: on_files("in/*.csv", max_files=0), "max_files"),
        (lambda: continuous(backoff_s=-1), "backoff_s"),
        (lambda: on_pipeline(""), "name is missing"),
        (lambda: on_pipeline("a", on="sucess"), 'on="success"'),
    ],
)
def test_what_can_mean_nothing_is_refused_where_it_is_written(make, text):
    with pytest.raises(TriggerDefinitionError, match=text) as caught:
        make()
    assert isinstance(caught.value, UserError)
    assert "Fix: " in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"triggers": ["0 6 * * *"]}, "is no trigger"),
        ({"triggers": [interval(60), interval(60)]}, "two triggers have the name"),
        ({"triggers": [continuous(), interval(60)]}, "beside other triggers"),
        ({"max_concurrent": 0}, "max_concurrent=0"),
        ({"when_busy": "wait"}, "when_busy='wait'"),
        ({"catch_up": True}, "catch_up=True"),
        ({"notify": "slack/x"}, "no list of Prefect blocks"),
        ({"notify": ["slack"]}, "no list of Prefect blocks"),
        ({"notify": 3}, "no list of Prefect blocks"),
        ({"notify": ["a/b?to=x@y.org"]}, r"takes no \?to="),
        ({"notify": ["email-server-credentials/ops"]}, r"needs \?to=ADDRESS"),
        ({"notify": ["email-server-credentials/ops?to=you"]}, "'you' is no mail address"),
        ({"long_after_s": 0}, "long_after_s=0"),
        ({"triggers": [interval(60, parameters={"dya": "x"})]}, "use day"),
        ({"triggers": [interval(60, parameters={"day": "{{ trigger.files }}"})]}, "trigger.time"),
        ({"triggers": [interval(60, parameters={"day": "{{ tigger.time }}"})]}, "fill in"),
    ],
)
def test_a_pipeline_refuses_what_its_triggers_can_not_do(options, text):
    with pytest.raises(TriggerDefinitionError, match=text):

        @pipeline(**options)
        def nightly(day: str = "") -> None: ...


def test_a_parameter_without_a_value_is_found_when_the_pipeline_is_defined():
    with pytest.raises(TriggerDefinitionError, match="no value for the parameter 'day'"):

        @pipeline(triggers=[interval(60)])
        def nightly(day: str) -> None: ...


def test_a_pipeline_keeps_its_triggers_when_it_is_copied():
    @pipeline(triggers=[cron("0 6 * * *", tz="Europe/Paris")], max_concurrent=2, retries=1)
    def nightly(day: str = "{{ trigger.date }}") -> None: ...

    copy = nightly.with_options(retries=2, when_busy="queue")
    assert [trigger.name for trigger in copy.policy.triggers] == [
        "cron-0-6-any-any-any-europe-paris"
    ]
    assert (copy.policy.max_concurrent, copy.policy.when_busy, copy.retries) == (2, "queue", 2)
    assert nightly.policy.when_busy == "skip"
