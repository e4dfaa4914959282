#!/usr/bin/env bash
# Runs a long step and says every 15 s that it still does. usage: progress.sh WHAT CMD...
set -uo pipefail
what=$1
shift
start=$SECONDS
(while sleep 15; do echo "$what: still at it after $((SECONDS - start)) s"; done) &
beat=$!
"$@"
rc=$?
kill "$beat" 2>/dev/null
wait "$beat" 2>/dev/null
[ $((SECONDS - start)) -ge 5 ] && echo "$what: done in $((SECONDS - start)) s"
exit $rc
