#!/usr/bin/env bash
# Installs what building and testing plait on Debian 12 needs, and a Python
# environment for the tests under build/venv. Does nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  ca-certificates git
  # The toolchain.
  ccache clang-22 clang-format-22 cmake lld-22 ninja-build
  # The compiler.
  libmlir-22-dev libzstd-dev llvm-22-dev llvm-22-tools mlir-22-tools zlib1g-dev
  # The runtime.
  flatbuffers-compiler libcli11-dev libdlpack-dev libdnnl-dev libflatbuffers-dev
  libopenmpi-dev libtomlplusplus-dev libucx-dev libxxhash-dev nlohmann-json3-dev
  openmpi-bin
  # The tests and benchmarks.
  libbenchmark-dev libgmock-dev libgtest-dev pkg-config python3-torch python3-venv
  # Counts what tools execute, the same in every run (test/Execute/growth.py).
  valgrind
  # The text that the quick start trains on.
  bible-kjv bible-kjv-text
)

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo "$@"
  else
    echo "error: not root and no sudo; run as root: $*" >&2
    exit 1
  fi
}

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null) ||
    status=unknown
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

# make_venv FOLDER REQUIREMENTS [OPTION...]: an environment of the system's Python,
# for another one on PATH may go away. Options are venv's but --no-deps, which is
# pip's. The stamp is newer than the requirements that it was made from.
make_venv() {
  local folder=$1 requirements=$2 venv=() pip=() option
  shift 2
  [ ! "$folder/installed" -nt "$requirements" ] || return 0
  for option in "$@"; do
    if [ "$option" = --no-deps ]; then pip+=("$option"); else venv+=("$option"); fi
  done
  /usr/bin/python3 -m venv "${venv[@]}" "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check --no-compile "${pip[@]}" \
    -r "$requirements"
  touch "$folder/installed"
}

# At the same time: each waits for the network. The second lies beside Debian's
# PyTorch, which is the system interpreter's; the third has what plait-data imports,
# and not what that would import to download.
makers=()
make_venv build/venv test/requirements.txt &
makers+=($!)
make_venv build/venv-transformers test/requirements-transformers.txt \
  --system-site-packages &
makers+=($!)
make_venv build/venv-data tools/plait-data/requirements.txt --no-deps &
makers+=($!)
for maker in "${makers[@]}"; do
  wait "$maker"
done

# Where there is the toolkit's assembler: what shows its code to
# test/Codegen/lint.py.
disassembler=13.5.37
if PATH="$PATH:/usr/local/cuda/bin" command -v ptxas > /dev/null &&
  ! compgen -G "build/venv/lib/*/*/nvidia_cuda_nvdisasm-$disassembler.*" > /dev/null; then
  build/venv/bin/pip install --quiet --disable-pip-version-check --no-deps \
    "nvidia-cuda-nvdisasm==$disassembler"
fi

# Where there is a CUDA toolkit with cuDNN: cuDNN's front end, of which only the
# headers are used; what its package depends on is for Python.
frontend=1.32.0
if [ -f "${CUDA_HOME:-/usr/local/cuda}/include/cudnn_graph.h" ] &&
  ! compgen -G "build/venv/lib/*/*/nvidia_cudnn_frontend-$frontend.*" > /dev/null; then
  build/venv/bin/pip install --quiet --disable-pip-version-check --no-deps \
    "nvidia-cudnn-frontend==$frontend"
fi
