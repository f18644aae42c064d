#!/usr/bin/env bash
# Builds the image with Docker or buildah and runs the acceptance check against it: check, sync, backfill, SIGTERM, exit codes,
# a read-only file system, settings by environment alone and by a mounted file. Needs npm ci first: the warehouse and the
# service of the check are those of this checkout. Exits non-zero where no engine can run.
set -euo pipefail
cd "$(dirname "$0")/.."
image=visibility-sync:acceptance

if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  engine=docker
  docker build --tag "$image" .
elif command -v podman >/dev/null && podman info >/dev/null 2>&1; then
  engine=podman
  podman build --tag "$image" .
elif command -v buildah >/dev/null; then
  echo 'image-acceptance: buildah can build here, but neither docker nor podman can run what it builds.' >&2
  buildah bud --tag "$image" .
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
port_of() { for _ in $(seq 100); do grep -oE "$2" "$1" 2>/dev/null | head -1 && return; sleep 0.2; done; fail "no address in $1"; }

node bin/visibility-sync.js reference --port 0 >"$work/reference" 2>&1 &
(cd "$work" && exec node "$OLDPWD/bin/visibility-sync.js" database) >"$work/database" 2>&1 &
api=$(port_of "$work/reference" 'http://127[^ ]*/v1')
database=$(port_of "$work/database" 'postgres://[^ ]*')
run() { "$engine" run --rm --network host --read-only --tmpfs /tmp --user 1000:1000 --cap-drop ALL "$@"; }
settings=(-e "VISIBILITY_API_URL=$api" -e VISIBILITY_API_KEY=reference-company-key -e "DATABASE_URL=$database"
  -e "VISIBILITY_PROJECTS=$(node -e "import('./dist/reference/world.js').then(({createWorld}) => console.log(createWorld({}).projects.map(({id}) => id).join(',')))")")

run "$image" --version | grep -qx "$(node -p "require('./package.json').version")" || fail version
run "${settings[@]}" "$image" check || fail check
run "${settings[@]}" "$image" || fail sync
run "${settings[@]}" "$image" backfill --from "$(date -u -d '-3 days' +%F)" --to "$(date -u +%F)" || fail backfill
code=0; run "${settings[@]}" "$image" backfill --from nonsense --to nonsense || code=$?
[ "$code" = 2 ] || fail "bad usage exits $code, not 2"
code=0; run "${settings[@]}" -e VISIBILITY_API_KEY=wrong "$image" sync || code=$?
[ "$code" = 1 ] || fail "a wrong key exits $code, not 1"
printf 'lookback_days: 2\nreports: [{ name: brand_daily, dimensions: [date] }]\n' >"$work/sync.yaml"
run "${settings[@]}" -e VISIBILITY_CONFIG=/settings/sync.yaml -v "$work/sync.yaml:/settings/sync.yaml:ro" "$image" sync || fail 'a mounted file'
name="visibility-sync-acceptance-$$"
run --name "$name" "${settings[@]}" "$image" serve --port 18080 >"$work/serve" 2>&1 &
serve=$!
port_of "$work/serve" 'Serving: .*' >/dev/null
"$engine" stop --time 30 "$name" >/dev/null
code=0; wait "$serve" || code=$?
[ "$code" = 0 ] || fail "SIGTERM ended serve with $code"
base=$("$engine" image inspect --format '{{.Size}}' node:24-slim)
size=$("$engine" image inspect --format '{{.Size}}' "$image")
above=$(( (size - base) / 1000000 ))
[ "$above" -lt 200 ] || fail "the image is $above MB above its base"
echo "image-acceptance: all well; $above MB above the base image"
