"""Dagster: an asset with a partition for each day, and a job that syncs every hour.

dagster dev -f dagster_defs.py, with visibility_sync_command.py beside it.
"""

import dagster as dg
from visibility_sync_command import Busy, Fatal, run

RETRIES = dg.RetryPolicy(max_retries=3, delay=300, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone="UTC")


def attempt(context, *args):
    """Returns False if another run holds the lock: that is no failure, and a retry would not help."""
    try:
        report = run(*args)
    except Fatal as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    except Busy as error:
        context.log.info(f"skipped: {error}")
        return False
    context.log.info(f"{report.get('rows', {})}")
    return True


# One command for a range of partitions: it reads long windows, which takes fewer requests than day by day.
# A partition that was skipped is not recorded as materialized.
@dg.asset(
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    retry_policy=RETRIES,
    group_name="visibility",
    output_required=False,
)
def warehouse_days(context: dg.AssetExecutionContext):
    """The days of the warehouse. Materializing a partition reads it again."""
    days = context.partition_key_range
    if attempt(context, "backfill", "--from", days.start, "--to", days.end):
        yield dg.Output(None)


@dg.op(retry_policy=RETRIES)
def sync(context: dg.OpExecutionContext) -> None:
    attempt(context, "sync")


@dg.job
def sync_hourly():
    sync()


defs = dg.Definitions(
    assets=[warehouse_days],
    jobs=[sync_hourly],
    schedules=[dg.ScheduleDefinition(job=sync_hourly, cron_schedule="15 * * * *", execution_timezone="UTC")],
)
