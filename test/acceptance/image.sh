#!/usr/bin/env bash
# Builds the image with Docker, podman or buildah and runs the acceptance check against it: the documented commands, check, sync,
# backfill, exit codes, a read-only file system, a user without a name, settings by environment alone, by a mounted file and by files
# of secrets, serve with HEALTHCHECK, a worker, and SIGTERM for each. Needs npm ci first: the warehouse and the service of the check
# are those of this checkout.
set -euo pipefail
. "$(dirname "$0")/warehouse.sh"
cd "$root"
image=visibility-sync

if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  engine=docker
elif command -v podman >/dev/null && podman info >/dev/null 2>&1; then
  engine=podman
elif command -v buildah >/dev/null; then
  engine=buildah
else
  fail 'neither docker, podman nor buildah is here, so nothing was built and nothing was checked.'
fi
if [ "$engine" = buildah ]; then
  . "$root/test/acceptance/image-by-buildah.sh"
else
  docker() {
    case "$engine $1" in
      'podman build') command podman build --format docker "${@:2}" ;; # podman's own format has no HEALTHCHECK
      *' run') command "$engine" run --network host "${@:2}" ;; # the warehouse of the check is on loopback
      *) command "$engine" "$@" ;;
    esac
  }
fi
# Runs the rest and demands its exit code.
exits() { local want=$1 code=0; shift; "$@" || code=$?; [ "$code" = "$want" ] || fail "exit code $code instead of $want: $*"; }

node bin/visibility-sync.js reference --port 0 >"$work/reference" 2>&1 &
started+=($!)
node bin/visibility-sync.js reference --port 0 --fault latency_ms=2000 >"$work/slow" 2>&1 &
started+=($!)
make_warehouse
psql_url() { echo "postgres://$PGUSER:$PGPASSWORD@$PGHOST:$PGPORT/$1"; }
node -e "const pg = require('pg'); const c = new pg.Client(process.argv[1]); c.connect().then(() => c.query('create database image')).then(() => c.query('create database slow')).then(() => c.end())" "$(psql_url "$PGDATABASE")"
export VISIBILITY_API_URL VISIBILITY_API_KEY VISIBILITY_PROJECTS DATABASE_URL
VISIBILITY_API_URL=$(wait_for "$work/reference" 'http://127[^ ]*/v1')
VISIBILITY_API_KEY=reference-company-key
VISIBILITY_PROJECTS=$(wait_for "$work/reference" 'or_[^ ]*')
DATABASE_URL=$(psql_url image)
slow=$(wait_for "$work/slow" 'http://127[^ ]*/v1')

# The first documented commands, word for word.
documented() { awk '/^```/ { inside = !inside; next } inside' docs/how-to/docker.md | grep "^docker $1 "; }
exits 0 eval "$(documented build)"
exits 0 eval "$(documented run | head -1)"

settings=(-e VISIBILITY_API_URL -e VISIBILITY_API_KEY -e VISIBILITY_PROJECTS -e DATABASE_URL)
run() { docker run --rm --read-only --tmpfs /tmp --user 1000:1000 --cap-drop ALL "${settings[@]}" "$@"; }
run "$image" --version | grep -qx "$(node -p "require('./package.json').version")" || fail version
exits 0 run "$image" check
exits 0 run "$image"
exits 0 run "$image" backfill --from "$(date -u -d '-3 days' +%F)" --to "$(date -u +%F)"
exits 2 run "$image" backfill --from nonsense --to nonsense
exits 1 run -e VISIBILITY_API_KEY=wrong "$image" sync
printf 'lookback_days: 2\nreports: [{ name: brand_daily, dimensions: [date] }]\n' >"$work/sync.yaml"
chmod 755 "$work"
exits 0 run -e VISIBILITY_CONFIG=/settings/sync.yaml -v "$work/sync.yaml:/settings/sync.yaml:ro" "$image" sync
exits 2 run "$image" nonsense

printf '%s' "$VISIBILITY_API_KEY" >"$work/api_key"
printf '%s' "$DATABASE_URL" >"$work/database_url"
chmod 644 "$work/api_key" "$work/database_url"
exits 0 docker run --rm --read-only --tmpfs /tmp --user 34567:34567 -e VISIBILITY_API_URL -e VISIBILITY_PROJECTS \
  -e VISIBILITY_API_KEY_FILE=/run/secrets/api_key -e DATABASE_URL_FILE=/run/secrets/database_url \
  -v "$work/api_key:/run/secrets/api_key:ro" -v "$work/database_url:/run/secrets/database_url:ro" "$image" sync

# SIGTERM in the middle of a sync: the process ends by itself, and says that it did not succeed.
container="visibility-sync-acceptance-$$"
run --name "$container-sync" -e "VISIBILITY_API_URL=$slow" -e "DATABASE_URL=$(psql_url slow)" "$image" backfill --from "$(date -u -d '-60 days' +%F)" --to "$(date -u +%F)" >"$work/stopped" 2>&1 &
sync=$! started+=($!)
sleep 4
docker stop --time 30 "$container-sync" >/dev/null || fail "$(cat "$work/stopped")"
exits 1 wait "$sync"
grep -qE 'Run [0-9]+: |run_id' "$work/stopped" || fail 'a sync that was stopped did not report'

# serve: alive by its own HEALTHCHECK; it and a worker end with 0 on SIGTERM.
run --name "$container-serve" "$image" serve --port 18080 >"$work/serve" 2>&1 &
serve=$! started+=($!)
wait_for "$work/serve" 'Serving: .*' >/dev/null
exits 0 docker exec "$container-serve" node /app/bin/healthcheck.js
docker stop --time 30 "$container-serve" >/dev/null
exits 0 wait "$serve"
printf 'queue: { mode: pg-boss }\n' >"$work/queue.yaml"
chmod 644 "$work/queue.yaml"
queued=(-e VISIBILITY_CONFIG=/settings/queue.yaml -v "$work/queue.yaml:/settings/queue.yaml:ro")
run --name "$container-worker" "${queued[@]}" "$image" worker >"$work/worker" 2>&1 &
worker=$! started+=($!)
exits 0 run "${queued[@]}" "$image" backfill --from "$(date -u -d '-9 days' +%F)" --to "$(date -u -d '-4 days' +%F)"
wait_for "$work/worker" 'window loaded' >/dev/null
docker stop --time 30 "$container-worker" >/dev/null
exits 0 wait "$worker"

docker image inspect "$image" | grep -q '/app/bin/healthcheck.js' || fail 'the image has no HEALTHCHECK'
docker image inspect "$image" | grep -q 'org.opencontainers.image.version' || fail 'the image has no labels'
if [ "$engine" = buildah ]; then
  buildah rm "$working" >/dev/null
else
  from=$(sed -n 's/^FROM \(node:[^ ]*\) AS base$/\1/p' Dockerfile)
  docker pull --quiet "$from" >/dev/null
  base=$(docker image inspect --format '{{.Size}}' "$from")
  size=$(docker image inspect --format '{{.Size}}' "$image")
  above=$(( (size - base) / 1000000 ))
  [ "$above" -lt 200 ] || fail "the image is $above MB above its base"
  echo "$name: the image is $above MB larger than its base"
fi
echo "image-acceptance: all well with $engine"
