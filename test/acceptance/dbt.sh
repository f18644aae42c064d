#!/usr/bin/env bash
# Proves the dbt package with the real dbt, on a warehouse that the real command made: build, source freshness, docs, the metrics,
# one project, a schema of another name, fewer reports, and that a wrong row is found. Needs Python 3.10+ with venv and its package index, and "npm ci".
# dbt below 1.12: that one downloads its parser when it runs.
set -euo pipefail
. "$(dirname "$0")/warehouse.sh"

make_venv 'dbt-core>=1.10,<1.12' 'dbt-postgres>=1.9,<1.12' 'dbt-metricflow[dbt-postgres]>=0.9,<1'
make_warehouse
# psycopg2 comes with dbt-postgres, so psql is not needed.
query() { "$work/venv/bin/python" -c 'import psycopg2, sys
connection = psycopg2.connect("")
connection.autocommit = True
cursor = connection.cursor()
cursor.execute(sys.argv[1])
print("\n".join("|".join(str(cell) for cell in row) for row in (cursor.fetchall() if cursor.description else [])))' "$1"; }

# A project of somebody's own that uses the package, as docs/how-to/dbt.md says.
make_pack dbt
mkdir "$work/project"
cd "$work/project"
printf 'packages:\n  - local: ../dbt\n' >packages.yml
cat >dbt_project.yml <<PROJECT
name: acceptance
profile: acceptance
PROJECT
cat >profiles.yml <<PROFILE
acceptance:
  target: acceptance
  outputs:
    acceptance:
      type: postgres
      host: $PGHOST
      port: $PGPORT
      user: $PGUSER
      password: "{{ env_var('PGPASSWORD') }}"
      dbname: $PGDATABASE
      schema: dbt_acceptance
      threads: 2
PROFILE
export DBT_SEND_ANONYMOUS_USAGE_STATS=false DO_NOT_TRACK=1 DBT_PROFILES_DIR="$work/project"
dbt() { "$work/venv/bin/dbt" --no-use-colors "$@" >"$work/dbt.log" 2>&1; }
must() { dbt "$@" || fail "dbt $*: $(tail -n 40 "$work/dbt.log")"; echo "$name: dbt $*: $(tail -n 1 "$work/dbt.log")"; }

must deps
must build --select package:visibility_sync
grep -q 'WARN=0 ERROR=0' "$work/dbt.log" || fail "not all passed: $(tail -n 5 "$work/dbt.log")"
if grep -i deprecat "$work/dbt.log"; then fail 'dbt calls something deprecated'; fi
must source freshness --select source:visibility
[ "$(grep -c 'PASS freshness of' "$work/dbt.log")" -ge 15 ] || fail "freshness: $(tail -n 20 "$work/dbt.log")"
must docs generate
[ -s target/catalog.json ] || fail 'no catalogue was written'

"$work/venv/bin/mf" query --metrics visibility,share_of_voice,position,sentiment \
  --group-by metric_time__week,brand_day__project,brand_day__brand --csv "$work/metrics.csv" >"$work/mf.log" 2>&1 ||
  fail "mf query: $(tail -n 20 "$work/mf.log")"
"$work/venv/bin/python" - "$work/metrics.csv" <<'PYTHON'
import csv, sys, psycopg2
cursor = psycopg2.connect("").cursor()
cursor.execute("""select week::text, project, brand, v.visibility, s.share_of_voice
  from visibility.visibility_weekly v join visibility.share_of_voice_weekly s using (project_id, week, brand_id, project, brand)""")
wanted = {row[:3]: row[3:] for row in cursor}
rows = list(csv.DictReader(open(sys.argv[1])))
assert len(rows) == len(wanted) > 20, (len(rows), len(wanted))
for row in rows:
    week = row["metric_time__week"][:10]
    visibility, share = wanted[(week, row["brand_day__project"], row["brand_day__brand"])]
    assert abs(float(row["visibility"]) - visibility) < 1e-9, (row, visibility)
    assert abs(float(row["share_of_voice"]) - share) < 1e-9, (row, share)
print(f"dbt-acceptance: the metrics of {len(rows)} weeks of brands are those of the views")
PYTHON

# Without a split by brand, the number of answers is that of the view.
"$work/venv/bin/mf" query --metrics total_answers --group-by answer_day__project --csv "$work/answers.csv" >"$work/mf.log" 2>&1 ||
  fail "mf query: $(tail -n 20 "$work/mf.log")"
"$work/venv/bin/mf" query --metrics visibility_by_model,visibility_by_topic --group-by metric_time__week --csv "$work/by.csv" >"$work/mf.log" 2>&1 ||
  fail "mf query: $(tail -n 20 "$work/mf.log")"
"$work/venv/bin/python" - "$work/answers.csv" <<'PYTHON'
import csv, sys, psycopg2
cursor = psycopg2.connect("").cursor()
cursor.execute("select project, sum(answers) from visibility.answers_daily group by 1")
wanted = dict(cursor.fetchall())
found = {row["answer_day__project"]: float(row["total_answers"]) for row in csv.DictReader(open(sys.argv[1]))}
assert found == wanted, (found, wanted)
print("dbt-acceptance: total_answers is that of answers_daily")
PYTHON

echo "$name: one project"
project=$(query 'select min(project_id) from visibility.projects')
make_pack dbt --project "$project"
must build
[ "$(query 'select distinct project_id from dbt_acceptance.brand_days')" = "$project" ] || fail 'the models have rows of other projects'

echo "$name: a schema of another name, and fewer reports"
query 'alter schema visibility rename to other_name' >/dev/null
query 'alter table other_name.brand_daily_by_tag rename to gone' >/dev/null
printf 'warehouse: { schema: other_name }\nreports: [{ name: brand_daily, dimensions: [date] }]\n' >"$work/other.yaml"
make_pack dbt --config "$work/other.yaml"
must build
query 'alter schema other_name rename to visibility' >/dev/null
query 'alter table visibility.gone rename to brand_daily_by_tag' >/dev/null
make_pack dbt

echo "$name: what is wrong is found"
query "insert into visibility.brand_daily (project_id, date, brand_id, visibility_count, visibility_total, mention_count)
  select project_id, date, 'nobody', 5, 3, 1 from visibility.brand_daily limit 1" >/dev/null
if dbt build; then fail 'a row with more hits than answers passed all tests'; fi
grep -q 'shares_are_shares' "$work/dbt.log" && grep -q 'listed_in' "$work/dbt.log" || fail "the tests did not say what is wrong: $(tail -n 20 "$work/dbt.log")"
query "delete from visibility.brand_daily where brand_id = 'nobody'" >/dev/null

# A corruption of one day of a report, and the test that must find it.
corrupt() {
  query 'create table kept as select * from visibility.brand_daily_by_model' >/dev/null
  query "$1" >/dev/null
  if dbt test --select source:visibility.brand_daily_by_model; then fail "not found: $1"; fi
  grep -qE "(FAIL|Failure).*$2" "$work/dbt.log" || fail "$2 did not find: $1: $(tail -n 20 "$work/dbt.log")"
  query 'delete from visibility.brand_daily_by_model; insert into visibility.brand_daily_by_model select * from kept; drop table kept' >/dev/null
  echo "$name: $2 finds: $1"
}
day="date = (select max(date) - 20 from visibility.brand_daily)"
corrupt "update visibility.brand_daily_by_model set visibility_count = visibility_count / 2, visibility = visibility / 2 where $day" adds_up
corrupt "delete from visibility.brand_daily_by_model where $day" rows_of_days
corrupt "update visibility.brand_daily_by_model set visibility = 0.987 where $day and visibility_count > 0" ratio_of_parts
must test --select source:visibility.brand_daily_by_model
echo "$name: passed"
