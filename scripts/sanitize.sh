#!/usr/bin/env bash
# The C layer of the ucx mover under the address, undefined behaviour and thread sanitizers, and its Go tests under the race
# detector. UCX itself is not instrumented: what only its own code touches is left out.
set -euo pipefail
cd "$(dirname "$0")/../kvbroker/ucx"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
build() { gcc -std=gnu11 -O1 -g -fno-omit-frame-pointer -Wall -Wextra "$@" sanitize/check.c uc.c -lucp -lucs -lpthread; }
export UCX_MEM_EVENTS=n UCX_HANDLE_ERRORS=none UCX_LOG_LEVEL=fatal
for l in libucp.so libuct.so libucs.so libucm.so; do echo "called_from_lib:$l"; done >"$out/tsan"
echo "mutex:_dl_call_fini" >>"$out/tsan" # a destructor of libucs
printf 'leak:libucs.so\nleak:libuct.so\nleak:libucp.so\n' >"$out/lsan"
echo "sanitize: addresses, undefined behaviour"
build -fsanitize=address,undefined -fno-sanitize-recover=all -o "$out/asan"
LSAN_OPTIONS=suppressions="$out/lsan":print_suppressions=0 timeout 120 "$out/asan"
echo "sanitize: threads"
build -fsanitize=thread -o "$out/tsan.bin"
TSAN_OPTIONS=suppressions="$out/tsan":halt_on_error=1 timeout 120 "$out/tsan.bin" threads
echo "sanitize: races in Go"
go test -race -tags ucx -count=1 .
go test -race -tags ucx -count=1 -run 'Many|Drained|Touches' ./pair
