#!/usr/bin/env bash
# Installs the official OpenAI Python client, pinned, into a folder of its own. usage: pyclient.sh DIR
set -euo pipefail
dir=${1:?where to}
req=$(dirname "$0")/../integration/clients/requirements.txt
cmp -s "$req" "$dir/requirements.txt" && exit 0
echo "pyclient: installing $(head -1 "$req")"
rm -rf "$dir"
python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --target "$dir" -r "$req" 2>"$dir.log" || { cat "$dir.log" >&2; exit 1; }
cp "$req" "$dir/requirements.txt"
