#!/usr/bin/env bash
# Builds plait-run on a GPU node and checks it there: conformance of the
# communicators, a pipeline over NCCL with large messages, the death of one of its
# processes, losses against the CPU's, recorded against walked steps, NCCL over
# processes, memory, races; with a process for each of several GPUs, as in a run,
# ten steps (test/Execute/node.py); and its speed against PyTorch's, where there is
# torch (TORCH_PYTHON: an interpreter that has it). Needs a C++ compiler (g++ 11
# will do), CMake 3.22, Ninja or Make, the CUDA toolkit and a folder made by
# scripts/bundle.sh; nothing is installed.
# Usage: scripts/gpu-check.sh [BUNDLE [RESULTS.json]]. Ends with 0 when all
# passed, 1 when something failed, 2 when there is no GPU. BUILD: build folder.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

bundle=$(realpath "${1:-build/bundle}")
build=${BUILD:-build-gpu}
results=$(realpath -m "${2:-$build/results.json}")
log=$build/build.log
if [ ! -f "$bundle/manifest.json" ]; then
  echo "gpu-check: '$bundle' is no bundle; make one with scripts/bundle.sh" >&2
  exit 1
fi

# NCCL and cuBLAS of a Python environment, where the toolkit has none.
packages=$("${TORCH_PYTHON:-python3}" -c 'import nvidia; print(list(nvidia.__path__)[0])' 2> /dev/null)
prefixes=$bundle/third-party libraries=
if [ -n "$packages" ]; then
  for folder in "$packages"/*/; do
    [ -d "$folder/include" ] && prefixes="$prefixes;${folder%/}"
    [ -d "$folder/lib" ] && libraries=$libraries:${folder}lib
  done
fi
libraries=$libraries:/usr/local/cuda/lib64
# What a pod or a job sets for its own processes is not about those below.
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
unset OMPI_COMM_WORLD_RANK SLURM_PROCID
# No empty entry: that would be the current folder.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}${libraries#:}"

# xxHash is in its header; the node may have another processor than the one
# that made the bundle.
mkdir -p "$build/xxhash/lib"
printf '#define %s\n' XXH_STATIC_LINKING_ONLY XXH_IMPLEMENTATION > "$build/xxhash/xxhash.c"
echo '#include <xxhash.h>' >> "$build/xxhash/xxhash.c"
"${CC:-cc}" -O2 -fPIC -I "$bundle/third-party/include" -c "$build/xxhash/xxhash.c" \
  -o "$build/xxhash/xxhash.o" &&
  ar rcs "$build/xxhash/lib/libxxhash.a" "$build/xxhash/xxhash.o" || exit 1
prefixes="$(realpath "$build/xxhash");$prefixes"

generator="Unix Makefiles"
! command -v ninja > /dev/null || generator=Ninja
cmake -S . -B "$build" -G "$generator" -DCMAKE_BUILD_TYPE=Release \
  -DPLAIT_BUILD_COMPILER=OFF -DPLAIT_ENABLE_CUDA=ON \
  "-DCMAKE_PREFIX_PATH=$prefixes" > "$log" 2>&1 &&
  cmake --build "$build" --parallel "$(nproc)" \
    --target plait-run plait-gpu-conformance >> "$log" 2>&1
code=$?
if [ $code -ne 0 ]; then
  grep -m 5 -A 3 -iE 'error' "$log" || tail -n 20 "$log"
  echo "gpu-check: the build failed; see $log" >&2
  exit 1
fi
echo "built $build/bin/plait-run"

# What hangs must not keep the rest from being checked.
timeout -k 10 1200 "$build/bin/plait-gpu-conformance" > "$build/conformance.log" 2>&1
conformance=$?
grep -E '^\[  (PASSED|FAILED|SKIPPED) +\] [0-9]+ tests?' "$build/conformance.log"
if ! gpus=$("$build/bin/plait-gpu-conformance" --gpu 2>&1); then
  echo "gpu-check: no GPU here: $gpus" >&2
  exit 2
fi
echo "$gpus"

python3 test/Execute/gpu.py --bin "$build/bin" --bundle "$bundle" \
  --results "$results"
code=$?
# A process a GPU, as in a run: ten steps, each with what it decides.
python3 test/Execute/node.py --bin "$build/bin" --bundle "$bundle" \
  --results "${results%.json}-node.json"
node=$?
# Slower than PyTorch is no failure; a run that does not end well is.
python3 bench/gpu.py --bin "$build/bin" --bundle "$bundle" \
  --torch-python "${TORCH_PYTHON:-python3}" --results "${results%.json}-speed.json"
speed=$?
[ $conformance -eq 0 ] || echo "gpu-check: conformance ended with $conformance; see $build/conformance.log"
[ $conformance -eq 0 ] && [ $code -eq 0 ] && [ $node -eq 0 ] && [ $speed -eq 0 ]
