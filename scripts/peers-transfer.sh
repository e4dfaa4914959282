#!/usr/bin/env bash
# Installs the peers of the transfer bench, pinned, each into a Python environment of its own: NIXL, Mooncake's transfer
# engine, and matplotlib for the plot. What cannot be installed is named and left out; the bench then has a row that says so.
# usage: peers-transfer.sh DIR    -> DIR/{nixl,mooncake,plot}/bin/python
set -uo pipefail
dir=${1:?where to}
"$(dirname "$0")/deps.sh" ucx || echo "peers: ucx_perftest is missing" >&2
numpy=numpy==2.4.6

# install NAME REQUIREMENT...: once, and again when the requirements change.
install() {
  local to=$dir/$1 want="${*:2}"
  [ "$(cat "$to/requirements" 2>/dev/null)" = "$want" ] && return
  echo "peers: installing $1: $want"
  rm -rf "$to"
  if mkdir -p "$dir" && python3 -m venv "$to" && "$to/bin/pip" -q --disable-pip-version-check install "$numpy" &&
    "$to/bin/pip" -q --disable-pip-version-check install "${@:2}"; then
    echo "$want" >"$to/requirements"
  else
    echo "peers: $1 could not be installed" >&2
    rm -rf "$to"
  fi
}
install nixl --no-deps nixl==1.5.1 nixl-cu13==1.5.1
install mooncake mooncake-transfer-engine-non-cuda==0.3.13.post1
install plot matplotlib==3.11.2
exit 0
