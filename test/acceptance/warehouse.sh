# Sourced by the acceptance scripts of packs: a warehouse in a folder of its own, made by the real command as "npm start" makes it,
# and kept up until the script ends, and the files of packs for it. Sets root, work, PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD. Needs "npm ci" first.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
name=$(basename "$0" .sh)
work=$(mktemp -d)
started=()
cleanup() {
  local pid
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "$name: FAILED: $*" >&2; exit 1; }
wait_for() { for _ in $(seq 150); do grep -oE "$2" "$1" 2>/dev/null | head -1 && return; sleep 0.2; done; fail "no '$2' in $1: $(cat "$1")"; }

# A Python of its own. PYTHON names another interpreter, VENV an environment that has everything already.
make_venv() {
  if [ -n "${VENV:-}" ]; then ln -s "$VENV" "$work/venv"; return; fi
  "${PYTHON:-python3}" -m venv "$work/venv" || fail 'Python 3.10 or later with venv is needed (Debian: python3-venv)'
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check "$@" || fail "pip could not install: $*"
}

# The files for a tool, written to $work/<tool> by the real command. Further arguments go to the command.
make_pack() {
  (cd "$work" && node "$root/bin/visibility-sync.js" pack "$1" --out "$work/$1" "${@:2}") >"$work/pack" 2>&1 ||
    fail "pack $*: $(cat "$work/pack")"
}

make_warehouse() {
  (cd "$work" && node "$root/bin/visibility-sync.js" sync >"$work/sync" 2>&1) || fail "the sync failed: $(tail -5 "$work/sync")"
  (cd "$work" && exec node "$root/bin/visibility-sync.js" database) >"$work/database" 2>&1 &
  started+=($!)
  local url
  url=$(wait_for "$work/database" 'postgres://[^ ;]*')
  export PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD
  PGUSER=$(sed -E 's#^postgres://([^:@]+).*#\1#' <<<"$url")
  PGHOST=$(sed -E 's#.*@([^:/]+).*#\1#' <<<"$url")
  PGPORT=$(sed -E 's#.*:([0-9]+)/.*#\1#' <<<"$url")
  PGDATABASE=$(sed -E 's#.*/([^/?]+).*#\1#' <<<"$url")
  PGPASSWORD=$(head -1 "$(find "$work/.data" -name pgpass | head -1)" | cut -d: -f5-)
}
