#!/usr/bin/env bash
# Runs the recipes for Prefect, Dagster and Airflow with the real ones: a sync, a day by its partition, and a configuration that is
# wrong, which must fail without another try. Needs Python 3.10+ with venv and its package index, and "npm ci" first.
# ORCHESTRATORS names those to run, all three by default. Kestra's recipe is not run.
set -euo pipefail
. "$(dirname "$0")/acceptance-warehouse.sh"
make_warehouse
export DATABASE_URL="postgres://$PGUSER:$PGPASSWORD@$PGHOST:$PGPORT/$PGDATABASE" VISIBILITY_API_URL=reference
export VISIBILITY_SYNC="node $root/bin/visibility-sync.js" LOG_LEVEL=warn
day=$(date -u -d '3 days ago' +%F)
cp "$root"/packs/orchestrators/*.py "$work/"
cd "$work"
python() { "$work/venv/bin/python" "$@"; }

with_prefect() {
  # Newer versions of fastapi lack an argument that Prefect 3.8 gives.
  make_venv 'prefect>=3,<4' 'fastapi<0.140'
  export PREFECT_HOME="$work/prefect" PREFECT_LOGGING_LEVEL=ERROR DO_NOT_TRACK=1
  python prefect_flow.py >"$work/log" 2>&1 || fail "Prefect: a sync: $(tail -n 20 "$work/log")"
  python prefect_flow.py "$day" >"$work/log" 2>&1 || fail "Prefect: a day: $(tail -n 20 "$work/log")"
  # Retries would take minutes.
  if timeout 60 "$work/venv/bin/python" prefect_flow.py nonsense >"$work/log" 2>&1; then fail 'Prefect: a wrong day passed'; fi
  grep -q 'Fatal' "$work/log" || fail "Prefect: a wrong day: $(tail -n 20 "$work/log")"
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
PYTHON
}

with_airflow() {
  make_venv 'apache-airflow>=3,<4'
  export AIRFLOW_HOME="$work/airflow" AIRFLOW__CORE__DAGS_FOLDER="$work/dags" AIRFLOW__CORE__LOAD_EXAMPLES=False
  mkdir "$work/dags"
  cp airflow_dag.py visibility_sync_command.py "$work/dags/"
  airflow() { "$work/venv/bin/airflow" "$@" >"$work/log" 2>&1; }
  airflow db migrate || fail "Airflow: $(tail -n 20 "$work/log")"
  airflow dags test visibility_sync || fail "Airflow: a sync: $(tail -n 30 "$work/log")"
  airflow dags test visibility_sync_days "$day" || fail "Airflow: a day: $(tail -n 30 "$work/log")"
  if DATABASE_URL=nonsense airflow dags test visibility_sync; then fail 'Airflow: a wrong address passed'; fi
  grep -q 'AirflowFailException' "$work/log" || fail "Airflow: a wrong address: $(tail -n 30 "$work/log")"
}

reads() { node -e "
const { Client } = require('$root/node_modules/pg')
const client = new Client({ connectionString: process.env.DATABASE_URL })
client.connect().then(() => client.query('select count(*)::int as runs from visibility_ops.runs where outcome = \$\$complete\$\$')).then(({ rows }) => { console.log(rows[0].runs); return client.end() })"; }

for one in ${ORCHESTRATORS:-prefect dagster airflow}; do
  "with_$one"
  echo "$name: $one: a sync and a day ran, a wrong configuration was not tried again; $(reads) complete runs so far"
  rm -rf "$work/venv"
done
echo "$name: passed"
