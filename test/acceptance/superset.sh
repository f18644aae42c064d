#!/usr/bin/env bash
# Imports the bundle into a real Superset 6.1 over its API, asks it for the data of each chart and compares that with SQL of its own.
# Needs Python 3.10 to 3.12 with venv and its package index, 1.5 GB of disk, and "npm ci" first.
set -euo pipefail
. "$(dirname "$0")/warehouse.sh"
# The last three are needed and not asked for by the package itself.
make_venv 'apache-superset==6.1.*' psycopg2-binary rich cachetools 'flask-caching==2.3.1'
make_warehouse

cat >"$work/superset_config.py" <<PYTHON
SECRET_KEY = "$(openssl rand -hex 24)"
SQLALCHEMY_DATABASE_URI = "sqlite:///$work/superset.db"
WTF_CSRF_ENABLED = False
TALISMAN_ENABLED = False
PYTHON
export SUPERSET_CONFIG_PATH="$work/superset_config.py" FLASK_APP=superset SUPERSET_ADMIN_PASSWORD
SUPERSET_ADMIN_PASSWORD=$(openssl rand -hex 12)
superset() { "$work/venv/bin/superset" "$@" >>"$work/superset.log" 2>&1 || fail "superset $1: $(tail -20 "$work/superset.log")"; }
superset db upgrade
superset fab create-admin --username admin --firstname a --lastname b --email admin@example.com --password "$SUPERSET_ADMIN_PASSWORD"
superset init
port=$(node -e "const s = require('node:net').createServer().listen(0, '127.0.0.1', () => { console.log(s.address().port); s.close() })")
"$work/venv/bin/superset" run --port "$port" >"$work/server.log" 2>&1 &
started+=($!)
for _ in $(seq 120); do curl -fsS "http://127.0.0.1:$port/health" >/dev/null 2>&1 && break; sleep 1; done

# As docs/how-to/superset.md says: the address of the warehouse in one file, then a zip of the folder.
make_pack superset
sed -i -E "s#postgresql\+psycopg2://.*#postgresql+psycopg2://$PGUSER:XXXXXXXXXX@$PGHOST:$PGPORT/$PGDATABASE#" "$work/superset/databases/AI_visibility.yaml"
(cd "$work" && "$work/venv/bin/python" -m zipfile -c visibility.zip superset)
"$work/venv/bin/python" "$root/test/acceptance/superset.py" "http://127.0.0.1:$port" "$work/visibility.zip" ||
  fail "see above; the server said: $(tail -20 "$work/server.log")"
# SUPERSET_PICTURE names a file for a picture of the dashboard; it takes a Chromium.
if [ -n "${SUPERSET_PICTURE:-}" ]; then
  (cd "$root" && node test/acceptance/superset-picture.mjs "http://127.0.0.1:$port" "$SUPERSET_PICTURE") || fail 'the picture'
fi
echo "$name: passed"
