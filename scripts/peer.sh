#!/usr/bin/env bash
# Builds the peer engine's bench and quantiser (llama.cpp, from a source package on the package index). About 8 minutes.
# usage: peer.sh DIR    -> DIR/bin/llama-bench, DIR/bin/llama-quantize
set -euo pipefail
dir=${1:?where to}
version=0.3.36
[ -x "$dir/bin/llama-bench" ] && [ -x "$dir/bin/llama-quantize" ] && exit 0
"$(dirname "$0")/deps.sh" cmake ninja
mkdir -p "$dir"
echo "peer: fetching and building llama.cpp (llama-cpp-python $version); this takes about 8 minutes on 2 cores"
python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$dir" "llama-cpp-python==$version"
tar -C "$dir" -xf "$dir/llama_cpp_python-$version.tar.gz"
cmake -S "$dir/llama_cpp_python-$version/vendor/llama.cpp" -B "$dir/llama" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
  -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF >"$dir/cmake.log"
ninja -C "$dir/llama" llama-bench llama-quantize
mkdir -p "$dir/bin"
ln -sf ../llama/bin/llama-bench ../llama/bin/llama-quantize "$dir/bin/"
