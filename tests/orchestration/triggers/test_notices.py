"""What people are told of long runs and missed times, and through which blocks."""

from __future__ import annotations

import pytest

from headrace import continuous, cron
from headrace.orchestration.triggers.notices import NoticeSender, send
from tests.orchestration.triggers.conftest import served, webhook_receiver


def sender(world, *pipelines):
    return NoticeSender(world.around(), {pipeline.name: pipeline for pipeline in pipelines})


def test_a_run_that_takes_longer_than_expected_is_told_while_it_goes_on(world):
    world.hands.ends = None
    slow = served(continuous(name="c"), name="slow", long_after_s=0.001)
    patient = served(continuous(name="c"), name="patient", long_after_s=3600)
    world.serve(slow, patient).turn()
    [run] = world.runs("slow")
    [notice] = sender(world, slow, patient).find(["slow", "patient"])
    assert (notice.kind, notice.run_id) == ("long", run.id)
    assert "takes longer than 0.001 s" in notice.subject
    assert f"headrace cancel {run.id}" in notice.body
    world.hands.end(run)
    assert list(sender(world, slow).find(["slow"])) == []


def test_times_that_passed_while_nothing_served_are_told(world):
    hourly = served(cron("0 * * * *", name="hourly"), catch_up="none")
    world.serve(hourly).turn()
    world.pass_s(3.5 * 3600)
    world.serve(hourly).turn()
    [notice] = sender(world, hourly).find(["p"])
    assert notice.subject == "p: hourly missed its time"
    assert "3 times passed while nothing served" in notice.body
    assert "headrace triggers show p" in notice.body


@pytest.mark.prefect
def test_a_notification_block_gets_subject_and_body(prefect_url):
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    form = {"text": "{{subject}}: {{body}}"}
    with webhook_receiver() as (told, url):
        block = CustomWebhookNotificationBlock(name="team", url=url, json_data=form)
        block.save("team", overwrite=True)
        send("custom-webhook/team", "p failed", "Repair it: headrace repair 1")
    assert told == [{"text": "p failed: Repair it: headrace repair 1"}]
