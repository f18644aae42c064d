#!/usr/bin/env bash
# Checks the data contract that "visibility-sync pack contract" writes against the JSON Schema of the Open Data Contract Standard 3.1, as datacontract-cli ships it.
# Needs Python 3.10+ with venv and its package index, and "npm ci" first.
set -euo pipefail
. "$(dirname "$0")/warehouse.sh"
make_venv jsonschema pyyaml
make_pack contract
"$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$work" datacontract-cli || fail 'datacontract-cli could not be downloaded'
"$work/venv/bin/python" - "$work" "$work/contract/visibility.odcs.yaml" <<'PYTHON'
import glob, json, sys, zipfile
import jsonschema, yaml
work, contract = sys.argv[1:]
[wheel] = glob.glob(f"{work}/datacontract_cli*.whl")
archive = zipfile.ZipFile(wheel)
[path] = [name for name in archive.namelist() if name.endswith("odcs-3.1.0.schema.json")]
schema = json.loads(archive.read(path))
document = yaml.safe_load(open(contract))
validator = jsonschema.Draft201909Validator(schema)
errors = [f"{list(error.path)}: {error.message[:300]}" for error in validator.iter_errors(document)]
assert not errors, "\n".join(errors[:10])
# The check can fail: a property that the standard does not know is refused.
document["schema"][0]["colour"] = "red"
assert list(validator.iter_errors(document)), "a document that is wrong passed"
print(f"contract-acceptance: passed, {len(document['schema'])} tables and views against {path}")
PYTHON
