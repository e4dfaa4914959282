#!/usr/bin/env bash
# Runs every fuzz target of the workspace. usage: fuzz.sh DURATION
set -euo pipefail
cd "$(dirname "$0")/.."
n=0
while IFS=: read -r file target; do
  echo "fuzz: ${file%/*} $target"
  (cd "${file%/*}" && go test -run '^$' -fuzz "^$target\$" -fuzztime "${1:?how long}" .)
  n=$((n + 1))
done < <(git grep -oE 'func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/:func /:/')
[ "$n" -gt 0 ] || { echo "fuzz: no target found" >&2; exit 1; }
echo "fuzz: $n targets"
