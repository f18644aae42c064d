#!/usr/bin/env bash
# Checks the alert rules with promtool, and lets a real Prometheus scrape "visibility-sync serve", load the rules and answer every
# query of the dashboard for operations. Needs Debian's package prometheus (promtool and prometheus), curl, and "npm ci" first.
set -euo pipefail
. "$(dirname "$0")/acceptance-warehouse.sh"
for tool in promtool prometheus curl; do
  command -v "$tool" >/dev/null || fail "$tool is missing (Debian: apt-get install prometheus curl)"
done

cd "$root/packs/prometheus"
promtool check rules alerts.yml
promtool test rules alerts.test.yml
promtool check config --syntax-only prometheus.yml

(cd "$work" && exec node "$root/bin/visibility-sync.js" serve --port 0) >"$work/serve" 2>&1 &
started+=($!)
address=$(wait_for "$work/serve" '127\.0\.0\.1:[0-9]+')
cp alerts.yml "$work/"
sed "s/127\.0\.0\.1:8080/$address/; s/30s/1s/g" prometheus.yml >"$work/prometheus.yml"
curl -fsS "http://$address/metrics" | promtool check metrics || fail 'promtool finds fault with the metrics'
port=$(node -e "const s = require('node:net').createServer().listen(0, '127.0.0.1', () => { console.log(s.address().port); s.close() })")
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address="127.0.0.1:$port" >"$work/prometheus.log" 2>&1 &
started+=($!)
wait_for "$work/prometheus.log" 'Server is ready to receive web requests' >/dev/null

ask() { curl -fsS --get "http://127.0.0.1:$port/api/v1/$1" "${@:2}"; }
# After the first sync of serve, so that every gauge is there.
for _ in $(seq 120); do
  ask query --data-urlencode 'query=visibility_sync_staleness_seconds' | grep -q '"value"' && break
  sleep 0.5
done
node - "http://127.0.0.1:$port" "$root/packs/grafana/operations.json" <<'NODE' || fail 'the queries of the dashboard'
const { readFileSync } = require('node:fs')
const [, , base, file] = process.argv
const call = async (path, query) => (await (await fetch(`${base}/api/v1/${path}${query === undefined ? '' : `?query=${encodeURIComponent(query)}`}`)).json())
async function main() {
  const targets = (await call('targets')).data.activeTargets
  if (targets.length !== 1 || targets[0].health !== 'up') throw new Error(`the target is not up: ${JSON.stringify(targets)}`)
  const rules = (await call('rules')).data.groups.flatMap(({ rules }) => rules)
  const sick = rules.filter(({ health }) => health === 'err')
  if (rules.length < 10 || sick.length > 0) throw new Error(`rules: ${JSON.stringify(sick)}`)
  // There is neither a queue nor a request that was tried again, and rates need two scrapes of something that changed.
  const mayBeEmpty = new Set(['Queue', 'Runs', 'Request budget', 'How long runs take', 'Rows written', 'Requests', 'Rows in quarantine'])
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
echo "$name: passed"
