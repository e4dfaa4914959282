#!/bin/sh
# Builds a real Consul server once, into OUT (default ../build/bin/consul). About 160 s and 3 GB of module cache when
# cold; nothing to do when OUT is there. The module is outside go.work: Consul's old dependencies must not decide ours.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../build/bin/consul}
[ -x "$out" ] && exit 0
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
echo "consul: building a server, once; a cold build takes some minutes" >&2
cd "$here"
GOWORK=off CGO_ENABLED=0 nice go build -mod=readonly -ldflags='-s -w' -o "$out.new" github.com/hashicorp/consul
mv "$out.new" "$out"
