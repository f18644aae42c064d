"""Airflow: a sync every hour, and a DAG that reads each day again after it ended.

Put this file and visibility_sync_command.py into the folder of DAGs. VISIBILITY_API_URL, VISIBILITY_API_KEY,
VISIBILITY_PROJECTS and DATABASE_URL are in the environment of the workers.
"""

from datetime import datetime, timedelta, timezone

from airflow.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk import dag, task
from airflow.timetables.interval import CronDataIntervalTimetable
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
    # Runs find gaps by themselves: missed hours need no runs of their own.
    catchup=False,
    max_active_runs=1,
    default_args=RETRIES,
)
def visibility_sync():
    @task
    def sync():
        return attempt("sync")

    sync()


# A run at midnight has the interval of the day that ended. With "@daily", Airflow 3 would give it the day that begins.
@dag(
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
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
