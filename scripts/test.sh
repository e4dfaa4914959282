#!/usr/bin/env bash
# Runs every test of the workspace and closes with their number. Needs: scripts/deps.sh, the model, build/bin.
# With the tag ucx, which needs libucx-dev (scripts/deps.sh libucx).
# usage: test.sh [go test flags]
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
go build -o "$out/report" ./integration/cmd/report
modules=$(go list -f '{{.Dir}}/...' -m | grep -v '/integration/\.\.\.$')
rc=0
run() { go test -tags ucx -json -count=1 -timeout 20m "$@" | tee -a "$out/all.json" | "$out/report" -live || rc=1; }
# shellcheck disable=SC2086
run -p 2 "$@" $modules
# Scenario tests start whole meshes; one package at a time, so that they do not starve each other on two cores.
run -p 1 "$@" ./integration/...
"$out/report" <"$out/all.json" || rc=1
exit $rc
