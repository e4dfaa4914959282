#!/usr/bin/env bash
# Runs fuzz targets for so many minutes each, as many at once as there are cores.
# usage: fuzz.sh MINUTES [PATTERN of file:target]   without a pattern: the decoders and the table of the boundary; with ".": every target.
# What a run learns stays in Go's fuzz cache (go env GOCACHE); an input that fails is written to the package's testdata/fuzz, to be committed.
set -euo pipefail
cd "$(dirname "$0")/.."
boundary='protos/proof/proof_test.go:FuzzOpen|kvbroker/(transfer|mover|attach|lease)/|protos/receipt/'
minutes=${1:?how many minutes} pattern=${2:-$boundary}
[[ $minutes =~ ^[0-9]+(\.[0-9]+)?$ ]] || { echo "fuzz: MINUTES=$minutes is no number" >&2; exit 2; }
seconds=$(awk "BEGIN { s = int($minutes * 60 + 0.5); print (s > 0) ? s : 1 }")
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export seconds logs

one() { # FILE:TARGET
  local dir=${1%/*} target=${1##*:} log
  log=$logs/${dir//\//-}-$target
  if (cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" -fuzzminimizetime 20x -parallel 1 .) >"$log" 2>&1 && grep -q 'execs: ' "$log"; then
    echo "fuzz: $dir $target: $(grep -o 'execs: [0-9]*' "$log" | tail -1), $(grep -o 'new interesting: .*' "$log" | tail -1)"
  else
    mv "$log" "$log.failed"
    echo "fuzz: $dir $target FAILED"
    cat "$log.failed"
  fi
}
export -f one

targets=$(git grep -oE 'func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/:func /:/' | grep -E "$pattern") || { echo "fuzz: no target matches $pattern" >&2; exit 2; }
start=$SECONDS
xargs -P "$(nproc)" -I{} bash -c 'one {}' <<<"$targets"
failed=$(find "$logs" -name '*.failed' -printf '%f ' | sed 's/\.failed//g')
execs=$(for log in "$logs"/*; do grep -o 'execs: [0-9]*' "$log" | tail -1 || true; done | awk '{ n += $2 } END { print n + 0 }')
met=$([ -z "$failed" ] && echo true || echo false)
echo "{\"bar\":\"fuzz\",\"met\":$met,\"figures\":{\"targets\":$(wc -l <<<"$targets"),\"failed\":\"$failed\",\"executions\":$execs,\"seconds each\":$seconds},\"seconds\":$((SECONDS - start))}"
$met
