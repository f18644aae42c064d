#!/usr/bin/env bash
# Builds the image with Docker or podman and runs the acceptance check against it: the documented commands, check, sync, backfill,
# SIGTERM, exit codes, a read-only file system, HEALTHCHECK, settings by environment alone and by a mounted file. Needs npm ci
# first: the warehouse and the service of the check are those of this checkout. Exits non-zero where no engine can run.
set -euo pipefail
cd "$(dirname "$0")/.."
image=visibility-sync

if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  engine=docker
elif command -v podman >/dev/null && podman info >/dev/null 2>&1; then
  engine=podman
elif command -v buildah >/dev/null; then
  echo 'image-acceptance: buildah can build here, but neither docker nor podman can run what it builds.' >&2
  buildah bud --format docker --tag "$image" .
  echo 'image-acceptance: the image was built and NOT run; the acceptance check did not happen.' >&2
  exit 1
else
  echo 'image-acceptance: neither docker, podman nor buildah is here, so nothing was built and nothing was checked.' >&2
  exit 1
fi

work=$(mktemp -d)
cleanup() { kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT
fail() { echo "image-acceptance: FAILED: $*" >&2; exit 1; }
wait_for() { for _ in $(seq 150); do grep -oE "$2" "$1" 2>/dev/null | head -1 && return; sleep 0.2; done; fail "no '$2' in $1"; }
# Runs the rest and demands its exit code.
exits() { local want=$1 code=0; shift; "$@" || code=$?; [ "$code" = "$want" ] || fail "exit code $code instead of $want: $*"; }

node bin/visibility-sync.js reference --port 0 >"$work/reference" 2>&1 &
node bin/visibility-sync.js reference --port 0 --fault latency_ms=2000 >"$work/slow" 2>&1 &
(cd "$work" && exec node "$OLDPWD/bin/visibility-sync.js" database) >"$work/database" 2>&1 &
export VISIBILITY_API_URL VISIBILITY_API_KEY VISIBILITY_PROJECTS DATABASE_URL
VISIBILITY_API_URL=$(wait_for "$work/reference" 'http://127[^ ]*/v1')
VISIBILITY_API_KEY=reference-company-key
VISIBILITY_PROJECTS=$(node -e "import('./dist/reference/world.js').then(({createWorld}) => console.log(createWorld({}).projects.map(({id}) => id).join(',')))")
DATABASE_URL=$(wait_for "$work/database" 'postgres://[^ ]*')
slow=$(wait_for "$work/slow" 'http://127[^ ]*/v1')

# The first documented commands, word for word; the network is all that is added, as the warehouse of the check is on loopback.
documented() { awk '/^```/ { inside = !inside; next } inside' docs/how-to/docker.md | grep "^docker $1 "; }
docker() {
  case "$engine $1" in
    'podman build') command podman build --format docker "${@:2}" ;; # podman's own format has no HEALTHCHECK
    *' run') command "$engine" run --network host "${@:2}" ;;
    *) command "$engine" "$@" ;;
  esac
}
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

# SIGTERM in the middle of a sync: the process ends by itself, and says that it did not succeed.
name="visibility-sync-acceptance-$$"
run --name "$name-sync" -e "VISIBILITY_API_URL=$slow" "$image" >"$work/sync" 2>&1 &
sync=$!
sleep 4
docker stop --time 30 "$name-sync" >/dev/null
exits 1 wait "$sync"
grep -q 'Run [0-9]*: ' "$work/sync" || fail 'a sync that was stopped did not report'

# serve: alive by its own HEALTHCHECK, and ends with 0 on SIGTERM.
run --name "$name" "$image" serve --port 18080 >"$work/serve" 2>&1 &
serve=$!
wait_for "$work/serve" 'Serving: .*' >/dev/null
exits 0 docker exec "$name" node /app/bin/healthcheck.js
docker stop --time 30 "$name" >/dev/null
exits 0 wait "$serve"

docker image inspect "$image" | grep -q '/app/bin/healthcheck.js' || fail 'the image has no HEALTHCHECK'
docker image inspect "$image" | grep -q 'org.opencontainers.image.version' || fail 'the image has no labels'
from=$(sed -n 's/^FROM \(node:[^ ]*\) AS base$/\1/p' Dockerfile)
docker pull --quiet "$from" >/dev/null
base=$(docker image inspect --format '{{.Size}}' "$from")
size=$(docker image inspect --format '{{.Size}}' "$image")
above=$(( (size - base) / 1000000 ))
[ "$above" -lt 200 ] || fail "the image is $above MB above its base"
echo "image-acceptance: all well with $engine; $above MB above the base image"
