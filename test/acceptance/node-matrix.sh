#!/usr/bin/env bash
# Runs tests on Node 20, 22 and 24, and installs the packed package on each, without a warning:
#   test/acceptance/node-matrix.sh [FILE...]     all tests by default
#   NODES="20.19 22" test/acceptance/node-matrix.sh test/sync.test.ts
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm run --silent build
npm pack --silent --pack-destination "$folder" > /dev/null
failed=()
for version in ${NODES:-20 22 24}; do
  npm install --silent --no-save --prefix "$folder/$version" "node-$(node -p 'process.platform')-$(node -p 'process.arch')@$version"
  path="$(dirname "$(ls -d "$folder/$version"/node_modules/node-*/bin/node)"):$PATH"
  echo "Node $(PATH=$path node --version)"
  mkdir -p "$folder/install-$version"
  (
    cd "$folder/install-$version"
    PATH=$path npm install --no-audit --no-fund "$folder"/visibility-sync-*.tgz > npm.log 2>&1
    # Other warnings are about the machine's own settings.
    ! grep -E 'npm warn (EBADENGINE|deprecated|ERESOLVE)' npm.log
    PATH=$path ./node_modules/.bin/visibility-sync sync --json > sync.json
    node -e 'const { outcome } = JSON.parse(require("fs").readFileSync("sync.json", "utf8")); if (outcome !== "complete") throw new Error(outcome)'
    echo "the package installs without a warning and syncs"
  ) || failed+=("$version (package)")
  (cd "$root" && PATH=$path npm run --silent jest -- "$@") || failed+=("$version")
done
[ ${#failed[@]} -eq 0 ] || { echo "failed on Node: ${failed[*]}" >&2; exit 1; }
