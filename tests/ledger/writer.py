"""Run by the concurrency test in processes of its own: several runs at once on one ledger."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from pathlib import Path

from headrace.ledger.records import AttemptRequest, Outcome, RunRequest
from headrace.ledger.store import open_ledger

ATTEMPTS = 4


def write_run(ledger, errors):
    try:
        run, repair = ledger.create_run(RunRequest(pipeline="p", entrypoint="e"))
        for number in range(ATTEMPTS):
            attempt = ledger.start_attempt(
                run.id, AttemptRequest(task="t", key=str(number)), seq=0, token=repair.token
            )
            ledger.renew_lease(attempt.id, attempt.token)
            ledger.renew_driver(repair.id, repair.token)
            outcome = Outcome(state="success", result={"n": number})
            ledger.finish_attempt(attempt.id, attempt.token, outcome)
            ledger.reap_expired()
        ledger.finish_run(run.id, 0, "success", token=repair.token)
    except BaseException:
        errors.append(traceback.format_exc())


def main(url, threads, go):
    while not Path(go).exists():
        time.sleep(0.01)
    errors = []
    with open_ledger(url) as ledger:
        writers = [
            threading.Thread(target=write_run, args=(ledger, errors)) for _ in range(int(threads))
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    sys.exit("\n".join(errors) or 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
