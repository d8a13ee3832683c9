"""What people are told of long runs and missed times, and through which blocks."""

from __future__ import annotations

import socketserver
import threading
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import default

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


@contextmanager
def mail_server():
    """What a mail server was given, and its port."""
    told = []

    class Session(socketserver.StreamRequestHandler):
        def handle(self):
            self.say("220 here")
            while line := self.rfile.readline().decode().strip():
                word = line.upper()[:4]
                if word == "DATA":
                    self.say("354 go on")
                    told.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                self.say("221 bye" if word == "QUIT" else "250 ok")

        def say(self, text):
            self.wfile.write(f"{text}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield told, server.server_address[1]
        server.shutdown()


@pytest.mark.prefect
def test_a_mail_goes_to_all_its_addresses(prefect_url):
    prefect_email = pytest.importorskip("prefect_email")

    with mail_server() as (told, port):
        block = prefect_email.EmailServerCredentials(
            smtp_server="127.0.0.1", smtp_port=port, smtp_type="INSECURE"
        )
        block.save("ops", overwrite=True)
        send("email-server-credentials/ops?to=a@x.org,b@y.org", "p failed", "Größe: 0")
    [mail] = [message_from_bytes(text, policy=default) for text in told]
    assert (mail["Subject"], mail["To"]) == ("p failed", "a@x.org, b@y.org")
    assert mail.get_content().strip() == "Größe: 0"


@pytest.mark.prefect
def test_slack_gets_subject_and_body(prefect_url, monkeypatch):
    import requests
    from prefect.blocks.notifications import SlackWebhook

    def to_here(method, address, **options):
        asked.append(address)
        return request(method, url, **options)

    asked, request = [], requests.request
    with webhook_receiver() as (told, url):
        monkeypatch.setattr(
            requests, "request", to_here
        )  # the block takes Slack's own address only
        hook = "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"
        SlackWebhook(url=hook).save("data-team", overwrite=True)
        send("slack-webhook/data-team", "p failed", "Repair it: headrace repair 1")
    assert asked == [hook]
    assert "p failed" in str(told)
    assert "Repair it: headrace repair 1" in str(told)
