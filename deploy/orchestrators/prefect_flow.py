"""Prefect: a flow that syncs, and reads a range of days again where one is given.

python prefect_flow.py runs it once; prefect_flow.py --serve keeps it scheduled every hour.
"""

import sys

from prefect import flow, task
from visibility_sync_command import Fatal, run


def is_worth_another_try(_task, _run, state):
    try:
        state.result()
    except Fatal:
        return False
    except Exception:
        return True
    return False


@task(retries=3, retry_delay_seconds=[60, 300, 900], retry_condition_fn=is_worth_another_try)
def command(*args: str) -> dict:
    return run(*args)


@flow(name="visibility-sync")
def visibility_sync(first_day: str | None = None, last_day: str | None = None) -> dict:
    if first_day is None:
        return command("sync")
    return command("backfill", "--from", first_day, "--to", last_day or first_day)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        visibility_sync.serve(name="hourly", cron="15 * * * *")
    else:
        visibility_sync(*sys.argv[1:])
