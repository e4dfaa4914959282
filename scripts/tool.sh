#!/usr/bin/env bash
# Builds a pinned Go tool once into build/bin. usage: tool.sh NAME MODULE_DIR PACKAGE
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/build/bin/$1
stamp=$bin.mod
if [ -x "$bin" ] && cmp -s "$2/go.sum" "$stamp"; then exit 0; fi
echo "tool: building $1"
mkdir -p build/bin
(cd "$2" && GOWORK=off go build -o "$bin" "$3")
cp "$2/go.sum" "$stamp"
