#!/usr/bin/env bash
# Installs, builds and runs every test. The last line sums up all runners:
# "N passed, N failed". A runner that ends without saying how many tests it ran
# counts as one failure. Options: --quick leaves out the GPT-2 124M runs, --fuzz
# builds the fuzz targets too and runs each for a minute.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

large=few
[ "${1:-}" != --quick ] || large=none
logs=build/test-logs
passed=0
failed=0
began=$SECONDS

finish() {
  wait
  local name n_good n_bad seconds
  while read -r name n_good n_bad seconds; do
    passed=$((passed + n_good))
    failed=$((failed + n_bad))
    echo "$name: $n_good passed, $n_bad failed in $seconds s"
  done < <(cat "$logs"/*.counts 2> /dev/null)
  # What failed, once more, where it is seen.
  grep -hE '^FAIL:? |^\[  FAILED  \] .*\([0-9]+ ms\)$| ended with code [0-9]+ after ' \
    "$logs"/*.log 2> /dev/null
  echo "all in $((SECONDS - began)) s"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# number PATTERN FILE: the last number that the sed pattern captures, or 0.
number() {
  local found
  found=$(sed -nE "s/$1/\1/p" "$2" | tail -n 1)
  echo "${found:-0}"
}

# suite NAME PASSED FAILED COMMAND...: counts by the two sed patterns.
suite() {
  local name=$1 good=$2 bad=$3 code n_good n_bad start=$SECONDS
  shift 3
  echo "$name 0 1 0" > "$logs/$name.counts" # should this shell end
  "$@" > "$logs/$name.log" 2>&1
  code=$?
  n_good=$(number "$good" "$logs/$name.log")
  n_bad=$(number "$bad" "$logs/$name.log")
  if [ "$n_bad" -eq 0 ] && { [ "$code" -ne 0 ] || [ "$n_good" -eq 0 ]; }; then
    echo "$name ended with code $code after $n_good passed tests" \
      >> "$logs/$name.log"
    n_bad=1
  fi
  echo "$name $n_good $n_bad $((SECONDS - start))" > "$logs/$name.counts"
  # What two suites print stays apart.
  flock "$logs" sh -c "echo '== $name' && cat '$logs/$name.log'"
}

# run NAME PASSED FAILED COMMAND...: beside at most one other, since most suites
# keep one core busy and wait for the other.
run() {
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do
    wait -n
  done
  suite "$@" &
}

# stage NAME COMMAND...: without it nothing else can run.
stage() {
  local name=$1
  shift
  echo "== $name"
  if ! "$@"; then
    echo "$name failed"
    failed=$((failed + 1))
    finish
  fi
}

# Threads that spin while they wait take the core from the other suite.
export OMP_WAIT_POLICY=passive
mkdir -p "$logs"
rm -f "$logs"/*
stage install scripts/install-deps.sh
stage build scripts/build.sh

# A registered test is a GoogleTest binary of that name. One process each: a
# crash costs that binary's tests, not the others.
binaries=$(ctest --test-dir build -N | sed -nE 's/^ *Test +#[0-9]+: (.+)$/\1/p')
for binary in $binaries; do
  run "$binary" '^\[  PASSED  \] ([0-9]+) tests?\.$' \
    '^\[  FAILED  \] ([0-9]+) tests?, listed below:$' "build/bin/$binary"
done
if [ -z "$binaries" ]; then
  echo "no unit tests are registered with ctest"
  failed=$((failed + 1))
fi
run lit '^ *Passed *: *([0-9]+).*' '^ *Failed *: *([0-9]+).*' \
  /usr/lib/llvm-22/bin/lit -v --param plait_bin="$PWD/build/bin" test
counts=('^([0-9]+) passed, [0-9]+ failed$' '^[0-9]+ passed, ([0-9]+) failed$')
run execute "${counts[@]}" \
  build/venv/bin/python test/Execute/run.py --large "$large"
run models "${counts[@]}" build/venv/bin/python test/Execute/models.py
run padding "${counts[@]}" build/venv/bin/python test/Execute/padding.py
run schedules "${counts[@]}" build/venv/bin/python test/Execute/schedules.py
run peaks "${counts[@]}" build/venv/bin/python test/Execute/peaks.py
run activations "${counts[@]}" \
  build/venv/bin/python test/Execute/activations.py
run offload "${counts[@]}" build/venv/bin/python test/Execute/offload.py
run overlap "${counts[@]}" build/venv/bin/python test/Execute/overlap.py
run optimizers "${counts[@]}" build/venv/bin/python test/Execute/optimizers.py
run data "${counts[@]}" build/venv/bin/python test/Execute/data.py
run prepare "${counts[@]}" build/venv-data/bin/python test/Execute/prepare.py
run training "${counts[@]}" build/venv/bin/python test/Execute/training.py
run watching "${counts[@]}" build/venv/bin/python test/Execute/watching.py
run config-files "${counts[@]}" \
  build/venv/bin/python test/Execute/config_files.py
run shardings "${counts[@]}" build/venv/bin/python test/Execute/shardings.py
run checkpoints "${counts[@]}" \
  build/venv/bin/python test/Execute/checkpoints.py
run snapshots "${counts[@]}" build/venv/bin/python test/Execute/snapshots.py
run replicas "${counts[@]}" build/venv/bin/python test/Execute/replicas.py
run export "${counts[@]}" \
  build/venv-transformers/bin/python test/Execute/export.py
run defects "${counts[@]}" build/venv/bin/python test/Execute/defects.py
# Debian's PyTorch is the system interpreter's.
run rates "${counts[@]}" /usr/bin/python3 test/Execute/rates.py
run dropout "${counts[@]}" /usr/bin/python3 test/Execute/dropout.py
run documents "${counts[@]}" /usr/bin/python3 test/Execute/documents.py
run random "${counts[@]}" /usr/bin/python3 test/Execute/random_models.py
run combinations "${counts[@]}" \
  /usr/bin/python3 test/Execute/random_models.py --configs --draws 100
run errors "${counts[@]}" build/venv/bin/python test/Execute/errors.py
run outputs "${counts[@]}" build/venv/bin/python test/Execute/outputs.py
run mpi "${counts[@]}" build/venv/bin/python test/Execute/mpi.py
run elastic "${counts[@]}" build/venv/bin/python test/Execute/elastic.py
run docs "${counts[@]}" build/venv/bin/python test/Docs/run.py
if [ "${1:-}" = --fuzz ]; then
  cmake --preset fuzz > /dev/null
  stage fuzz-build cmake --build --preset fuzz
  run fuzz "${counts[@]}" python3 test/Fuzz/run.py
fi
finish
