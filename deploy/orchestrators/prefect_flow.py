# /// script
# requires-python = ">=3.10"
# # Prefect 3.8 passes an argument to fastapi that later versions of fastapi lack.
# dependencies = ["prefect>=3,<4", "fastapi<0.140"]
# ///
"""Prefect: a flow that syncs, and reads a range of days again where one is given.

pip install "prefect>=3,<4" "fastapi<0.140"
python prefect_flow.py runs it once; python prefect_flow.py --serve keeps it scheduled every hour.
"uv run prefect_flow.py" installs both packages by itself.
"""

import sys

from prefect import flow, task
from prefect.states import Completed
from visibility_sync_command import Busy, Fatal, run


def should_retry(_task, _run, state):
    try:
        state.result()
    except Fatal:
        return False
    except Exception:
        return True
    return False


@task(retries=3, retry_delay_seconds=[60, 300, 900], retry_condition_fn=should_retry)
def command(*args: str) -> dict:
    try:
        return run(*args)
    except Busy as error:
        # Another run does the work: no failure, and a retry would not help.
        return {"skipped": str(error)}


@flow(name="visibility-sync")
def visibility_sync(first_day: str | None = None, last_day: str | None = None):
    """Ends as "Skipped", which is a kind of Completed, if another run holds the lock."""
    days = [] if first_day is None else ["--from", first_day, "--to", last_day or first_day]
    report = command("backfill" if days else "sync", *days)
    if "skipped" in report:
        return Completed(name="Skipped", message=report["skipped"], data=report)
    return report


if __name__ == "__main__":
    if "--serve" in sys.argv:
        visibility_sync.serve(name="hourly", cron="15 * * * *")
    else:
        visibility_sync(*sys.argv[1:])
