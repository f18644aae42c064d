#!/usr/bin/env bash
# Runs the recipes for Prefect, Dagster and Airflow with the real tools: a sync, a day by its partition, a lock that another run
# holds, which must be skipped, and a wrong configuration, which must fail. Neither may be retried. Needs Python 3.10+ with venv and its package index, and "npm ci" first.
# ORCHESTRATORS names those to run, all three by default. Kestra's recipe is not run.
set -euo pipefail
. "$(dirname "$0")/warehouse.sh"
make_warehouse
export DATABASE_URL="postgres://$PGUSER:$PGPASSWORD@$PGHOST:$PGPORT/$PGDATABASE" VISIBILITY_API_URL=reference
day=$(date -u -d '3 days ago' +%F)
cp "$root"/deploy/orchestrators/*.py "$work/"
cd "$work"
python() { "$work/venv/bin/python" "$@"; }
# Records each call, and ends as if another run held the lock if BUSY is set.
cat >"$work/command" <<COMMAND
echo "\$*" >>"$work/calls"
if [ -n "\${BUSY:-}" ]; then echo '{"error":{"code":"locked","message":"another run holds the lock"}}'; exit 3; fi
exec node "$root/bin/visibility-sync.js" "\$@"
COMMAND
export VISIBILITY_SYNC="bash $work/command" LOG_LEVEL=warn
called() { [ "$(cat "$work/calls")" = "$1" ] || fail "called: $(cat "$work/calls"); expected: $1"; : >"$work/calls"; }

with_prefect() {
  # The packages that the recipe itself names.
  mapfile -t packages < <(sed -n 's/^# dependencies = //p' prefect_flow.py | grep -o '"[^"]*"' | tr -d '"')
  make_venv "${packages[@]}"
  export PREFECT_HOME="$work/prefect" PREFECT_LOGGING_LEVEL=ERROR DO_NOT_TRACK=1
  export PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS=180
  python prefect_flow.py >"$work/log" 2>&1 || fail "Prefect: a sync: $(tail -n 20 "$work/log")"
  python prefect_flow.py "$day" >"$work/log" 2>&1 || fail "Prefect: a day: $(tail -n 20 "$work/log")"
  called "sync --json
backfill --from $day --to $day --json"
  BUSY=1 timeout 200 "$work/venv/bin/python" - >"$work/log" 2>&1 <<'PYTHON' || fail "Prefect: a lock: $(tail -n 20 "$work/log")"
from prefect_flow import visibility_sync
state = visibility_sync(return_state=True)
assert state.is_completed() and state.name == "Skipped", state
PYTHON
  called 'sync --json'
  # Retries would take minutes.
  if timeout 200 "$work/venv/bin/python" prefect_flow.py nonsense >"$work/log" 2>&1; then fail 'Prefect: a wrong day passed'; fi
  grep -q 'Fatal' "$work/log" || fail "Prefect: a wrong day: $(tail -n 20 "$work/log")"
  called 'backfill --from nonsense --to nonsense --json'
}

with_dagster() {
  make_venv dagster
  export DAGSTER_HOME="$work/dagster" DAGSTER_DISABLE_TELEMETRY=1
  mkdir "$DAGSTER_HOME"
  python - "$day" >"$work/log" 2>&1 <<'PYTHON' || fail "Dagster: $(tail -n 20 "$work/log")"
import os, sys
import dagster as dg
from dagster_defs import defs, sync_hourly, warehouse_days
assert sync_hourly.execute_in_process().success
assert dg.materialize([warehouse_days], partition_key=sys.argv[1]).success
dg.Definitions.validate_loadable(defs)
os.environ["DATABASE_URL"] = "nonsense"
result = sync_hourly.execute_in_process(raise_on_error=False)
events = [event.event_type_value for event in result.all_events]
assert not result.success and "STEP_UP_FOR_RETRY" not in events, events
# Another run holds the lock.
os.environ["BUSY"] = "1"
result = sync_hourly.execute_in_process()
assert result.success and "STEP_UP_FOR_RETRY" not in [event.event_type_value for event in result.all_events]
result = dg.materialize([warehouse_days], partition_key=sys.argv[1])
assert result.success and not result.get_asset_materialization_events(), result.get_asset_materialization_events()
PYTHON
  called "sync --json
backfill --from $day --to $day --json
sync --json
sync --json
backfill --from $day --to $day --json"
}

with_airflow() {
  make_venv 'apache-airflow>=3,<4'
  export AIRFLOW_HOME="$work/airflow" AIRFLOW__CORE__DAGS_FOLDER="$work/dags" AIRFLOW__CORE__LOAD_EXAMPLES=False
  mkdir "$work/dags"
  cp airflow_dag.py visibility_sync_command.py "$work/dags/"
  airflow() { "$work/venv/bin/airflow" "$@" >"$work/log" 2>&1; }
  airflow db migrate || fail "Airflow: $(tail -n 20 "$work/log")"
  airflow dags test visibility_sync || fail "Airflow: a sync: $(tail -n 30 "$work/log")"
  # A run at midnight reads the day that ended.
  airflow dags test visibility_sync_days "$day" || fail "Airflow: a day: $(tail -n 30 "$work/log")"
  local ended
  ended=$(date -u -d "$day - 1 day" +%F)
  called "sync --json
backfill --from $ended --to $ended --json"
  BUSY=1 airflow dags test visibility_sync || fail "Airflow: a lock: $(tail -n 30 "$work/log")"
  called 'sync --json'
  if DATABASE_URL=nonsense airflow dags test visibility_sync; then fail 'Airflow: a wrong address passed'; fi
  grep -q 'AirflowFailException' "$work/log" || fail "Airflow: a wrong address: $(tail -n 30 "$work/log")"
  called 'sync --json'
}

reads() { node -e "
const { Client } = require('$root/node_modules/pg')
const client = new Client({ connectionString: process.env.DATABASE_URL })
client.connect().then(() => client.query('select count(*)::int as runs from visibility_ops.runs where outcome = \$\$complete\$\$')).then(({ rows }) => { console.log(rows[0].runs); return client.end() })"; }

for one in ${ORCHESTRATORS:-prefect dagster airflow}; do
  "with_$one"
  echo "$name: $one: a sync and a day ran, a lock was skipped, a wrong configuration was not retried; $(reads) complete runs so far"
  rm -rf "$work/venv"
done
echo "$name: passed"
