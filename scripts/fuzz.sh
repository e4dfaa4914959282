#!/usr/bin/env bash
# Runs every fuzz target of the workspace for so many minutes each. usage: fuzz.sh MINUTES [PATTERN of file:target]
# What a run learns stays in Go's fuzz cache; an input that fails is written to the package's testdata/fuzz, to be committed.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?how many minutes} pattern=${2:-.}
[[ $minutes =~ ^[0-9]+(\.[0-9]+)?$ ]] || { echo "fuzz: MINUTES=$minutes is no number" >&2; exit 2; }
seconds=$(awk "BEGIN { s = int($minutes * 60 + 0.5); print (s > 0) ? s : 1 }")
n=0 failed=()
start=$SECONDS
while IFS=: read -r file target; do
  echo "fuzz: ${file%/*} $target"
  (cd "${file%/*}" && go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" -fuzzminimizetime 20x .) || failed+=("$target")
  n=$((n + 1))
done < <(git grep -oE 'func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/:func /:/' | grep -E "$pattern")
met=false
[ "$n" -gt 0 ] && [ "${#failed[@]}" -eq 0 ] && met=true
echo "{\"bar\":\"fuzz\",\"met\":$met,\"figures\":{\"targets\":$n,\"failed\":\"${failed[*]-}\",\"seconds each\":$seconds},\"seconds\":$((SECONDS - start))}"
$met
