"""Airflow: a sync every hour, and days that are read again when their partition is run again.

Put this file and visibility_sync_command.py into the folder of DAGs. VISIBILITY_API_URL, VISIBILITY_API_KEY,
VISIBILITY_PROJECTS and DATABASE_URL are in the environment of the workers.
"""

from datetime import datetime, timedelta, timezone

from airflow.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk import dag, task
from visibility_sync_command import Busy, Fatal, run

RETRIES = {"retries": 3, "retry_delay": timedelta(minutes=5), "retry_exponential_backoff": True}


def attempt(*args):
    try:
        return run(*args)
    except Fatal as error:
        raise AirflowFailException(str(error)) from error
    except Busy as error:
        raise AirflowSkipException(str(error)) from error


@dag(
    schedule="15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    # Runs find gaps by themselves: hours that were missed need no runs of their own.
    catchup=False,
    max_active_runs=1,
    default_args=RETRIES,
)
def visibility_sync():
    @task
    def sync():
        return attempt("sync")

    sync()


@dag(
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args=RETRIES,
)
def visibility_sync_days():
    """For "airflow backfill create --dag-id visibility_sync_days --from-date … --to-date …": one run for each day."""

    @task
    def read_again(data_interval_start=None):
        day = data_interval_start.strftime("%Y-%m-%d")
        return attempt("backfill", "--from", day, "--to", day)

    read_again()


visibility_sync()
visibility_sync_days()
