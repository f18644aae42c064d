#!/usr/bin/env bash
# Tests the alert rules with promtool (test/acceptance/alerts.yml), and lets a real Prometheus scrape "visibility-sync serve" under
# another job name, load the rules, answer every query of the dashboard for operations, and raise an alert when serve ends. Needs Debian's package prometheus (promtool and prometheus), curl, and "npm ci" first.
set -euo pipefail
. "$(dirname "$0")/warehouse.sh"
for tool in promtool prometheus curl; do
  command -v "$tool" >/dev/null || fail "$tool is missing (Debian: apt-get install prometheus curl)"
done

make_pack prometheus
make_pack grafana
cd "$work/prometheus"
promtool check rules alerts.yml
cp "$root/test/acceptance/alerts.yml" .
promtool test rules alerts.yml
promtool check config --syntax-only prometheus.yml
# The tests can fail: with another threshold, and without the values of a process that is gone, they do.
mkdir broken
cp alerts.yml broken/
for change in 's/> 93600/> 936000/' 's/\[7d\]/[1m]/'; do
  sed "$change" alerts.yml >broken/alerts.yml
  if promtool test rules broken/alerts.yml >/dev/null 2>&1; then fail "rules changed by $change passed their tests"; fi
done

(cd "$work" && exec node "$root/bin/visibility-sync.js" serve --port 0) >"$work/serve" 2>&1 &
started+=($!)
address=$(wait_for "$work/serve" '127\.0\.0\.1:[0-9]+')
serve=$!
sed 's/for: 5m/for: 1s/' alerts.yml >"$work/alerts.yml"
sed "s/127\.0\.0\.1:8080/$address/; s/30s/1s/g; s/job_name: .*/job_name: etl/" prometheus.yml >"$work/prometheus.yml"
curl -fsS "http://$address/metrics" | promtool check metrics || fail 'promtool finds fault with the metrics'
port=$(node -e "const s = require('node:net').createServer().listen(0, '127.0.0.1', () => { console.log(s.address().port); s.close() })")
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address="127.0.0.1:$port" >"$work/prometheus.log" 2>&1 &
started+=($!)
wait_for "$work/prometheus.log" 'Server is ready to receive web requests' >/dev/null

ask() { curl -fsS --get "http://127.0.0.1:$port/api/v1/$1" "${@:2}"; }
# Once the first sync of serve is over and was scraped a few times, so that everything is there.
settled='sum(visibility_sync_runs_total{outcome="complete"}) >= 1 and sum(count_over_time(up[1m])) >= 5'
for _ in $(seq 240); do
  answer=$(ask query --data-urlencode "query=$settled")
  [[ $answer == *'"value"'* ]] && break
  sleep 0.5
done
[[ $answer == *'"value"'* ]] || fail "no complete sync was scraped: $(tail -n 3 "$work/serve")"
node - "http://127.0.0.1:$port" "$work/grafana/operations.json" <<'NODE' || fail 'a query of the dashboard or a rule'
const { readFileSync } = require('node:fs')
const [, , base, file] = process.argv
const call = async (path, query) => (await (await fetch(`${base}/api/v1/${path}${query === undefined ? '' : `?query=${encodeURIComponent(query)}`}`)).json())
async function main() {
  const targets = (await call('targets')).data.activeTargets
  if (targets.length !== 1 || targets[0].health !== 'up') throw new Error(`the target is not up: ${JSON.stringify(targets)}`)
  const rules = (await call('rules')).data.groups.flatMap(({ rules }) => rules)
  const sick = rules.filter(({ health }) => health === 'err')
  if (rules.length < 10 || sick.length > 0) throw new Error(`rules: ${JSON.stringify(sick)}`)
  // There is no queue here, and series that begin with the first run have no increase before the second.
  const mayBeEmpty = new Set(['Queue', 'How long runs take', 'Rows written', 'Requests'])
  for (const { title, targets: asked } of JSON.parse(readFileSync(file, 'utf8')).panels) {
    for (const { expr } of asked) {
      const answer = await call('query', expr.replaceAll('$project', '.*').replaceAll('$stream', '.*'))
      if (answer.status !== 'success') throw new Error(`${title}: ${JSON.stringify(answer)}`)
      if (answer.data.result.length === 0 && !mayBeEmpty.has(title)) throw new Error(`${title}: no data for ${expr}`)
      console.log(`prometheus-acceptance: ${title}: ${answer.data.result.length} series`)
    }
  }
}
main().catch((error) => { console.error(error.message); process.exit(1) })
NODE
# A process that ends raises the alert, whatever its job is called.
kill "$serve"
wait "$serve" || true
for _ in $(seq 60); do
  answer=$(ask alerts)
  [[ $answer == *VisibilitySyncDown*firing* ]] && break
  sleep 0.5
done
[[ $answer == *VisibilitySyncDown*firing* ]] || fail "no alert when serve ended: $answer"
echo "$name: passed"
