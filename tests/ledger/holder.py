"""Run by the fault tests in a process of its own: hold a run and an attempt until told to finish."""

from __future__ import annotations

import sys
import threading

from headrace.exceptions import LeaseLostError
from headrace.ledger.heartbeat import keep_lease
from headrace.ledger.records import AttemptRequest, Outcome, RunRequest
from headrace.ledger.store import open_ledger


def main(url, lease_s):
    lease = float(lease_s)
    lost = threading.Event()
    with open_ledger(url) as ledger:
        run, repair = ledger.create_run(RunRequest(pipeline="p", entrypoint="e"), lease_s=lease)
        attempt = ledger.start_attempt(
            run.id, AttemptRequest(task="t"), seq=0, token=repair.token, lease_s=lease
        )
        beats = {"on_lost": lost.set, "lease_s": lease, "beat_s": lease / 10}
        with (
            keep_lease(ledger.renew_driver, repair.id, repair.token, **beats),
            keep_lease(ledger.renew_lease, attempt.id, attempt.token, **beats),
        ):
            print(run.id, attempt.id, flush=True)
            sys.stdin.readline()
            try:
                ledger.finish_attempt(
                    attempt.id, attempt.token, Outcome(state="success", result="late")
                )
            except LeaseLostError:
                print("refused", flush=True)
            # Whoever was stopped past its lease learns it at the next heartbeat.
            print("lost" if lost.wait(60) else "kept", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
