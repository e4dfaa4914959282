#!/usr/bin/env bash
# Installs what the build needs and this machine lacks: Debian packages when it may, else it names them and stops.
set -euo pipefail
need=()
command -v go >/dev/null || { echo "deps: Go 1.26 or newer is needed, and not on PATH" >&2; exit 1; }
command -v g++ >/dev/null || need+=(g++)
command -v make >/dev/null || need+=(make)
command -v git >/dev/null || need+=(git)
command -v python3 >/dev/null || need+=(python3)
python3 -m pip --version >/dev/null 2>&1 || need+=(python3-pip)
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || need+=(python3-venv)
for p in "$@"; do
  case $p in
    cmake) command -v cmake >/dev/null || need+=(cmake) ;;
    simde) [ -f /usr/include/simde/x86/avx512.h ] || need+=(libsimde-dev) ;;
    promtool) command -v promtool >/dev/null || need+=(prometheus) ;;
    ninja) command -v ninja >/dev/null || need+=(ninja-build) ;;
    libucx) [ -f /usr/include/ucp/api/ucp.h ] || need+=(libucx-dev) ;;
    netns)
      command -v ip >/dev/null && command -v tc >/dev/null || need+=(iproute2)
      command -v nft >/dev/null || need+=(nftables) ;;
    ucx) command -v ucx_perftest >/dev/null || need+=(ucx-utils) ;;
    *) echo "deps: unknown package $p" >&2; exit 2 ;;
  esac
done
[ ${#need[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "deps: missing ${need[*]}; install them (Debian: apt-get install ${need[*]}) and run this again" >&2
  exit 1
fi
echo "deps: installing ${need[*]}"
apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}"
