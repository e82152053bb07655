#!/usr/bin/env bash
# Installs, builds and runs every test. The last line sums up all runners:
# "N passed, N failed". A runner that ends without saying how many tests it ran
# counts as one failure. What is drawn or combined is a subset that covers, in
# less than 40 minutes on two cores. Options: --quick leaves out the GPT-2 124M
# runs, --all leaves out nothing and takes hours, --fuzz builds the fuzz targets
# too and runs each for a minute.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# Of the suites that take all where they are told so.
covering=()
trained=()
defects=(--most 1 --enough 6)
docs=()
lit=(--time-tests)
random=(--draws 50)
combinations=(--draws 30)
checkpoints=()
elastic=()
launchers=()
from_torch=()
modules=()
# Of unit tests what a default run leaves out: sizes between others, and what other
# tests combine. "*" and "?" are all that GoogleTest's patterns have.
declare -A left_out=(
  # Of 1 to 8 ranks 3, 4, 6 and 7, with stand-ins of GPUs; of 13 meshes seven; and
  # of sinks tp=2 alone, which is in another mesh, too.
  [plait-cuda-tests]="$(printf ':*CommunicatorTest.*%s' 3 4 6 7
    printf ':*CudaModelTest.EqualsTheCpu/%s' 3 4 5 6 7 10 11):*CudaSinksTest.*/1"
  # Models whose kernels others have too, on a mesh or with an odd vocabulary.
  [PlaitCodegenPtxTests]="$(printf ':*Models.KernelsAgree/%s' \
    Gpt2 Gpt2Half Gpt2Mesh Gpt2OddHalf Llama)"
)
case ${1:-} in
  --quick) trained=(--without gpt2-124m) ;;
  --all)
    covering=(--all)
    left_out=()
    defects=(--most 6)
    random=(--long)
    combinations=(--draws 2500)
    checkpoints=(--long 200)
    elastic=(--long)
    launchers=(--all)
    from_torch=(--all)
    modules=(--draws 60)
    docs=(--slow)
    lit+=(--param long=1)
    export PLAIT_LONG_TESTS=1
    ;;
  '' | --fuzz) ;;
  *)
    echo "test.sh: error: option $1 is none of --quick, --all and --fuzz" >&2
    exit 1
    ;;
esac
logs=build/test-logs
passed=0
failed=0
began=$SECONDS

finish() {
  wait
  local name n_good n_bad seconds busy all_busy=0
  while read -r name n_good n_bad seconds busy; do
    passed=$((passed + n_good))
    failed=$((failed + n_bad))
    all_busy=$((all_busy + busy))
    echo "$name: $n_good passed, $n_bad failed in $seconds s, $busy s of processors"
  done < <(cat "$logs"/*.counts 2> /dev/null)
  # What failed, once more, where it is seen.
  grep -hE '^FAIL:? |^\[  FAILED  \] .*\([0-9]+ ms\)$| ended with code [0-9]+ after ' \
    "$logs"/*.log 2> /dev/null
  echo "the slowest:"
  find_slowest
  echo "all in $((SECONDS - began)) s, tests with $all_busy s of processors"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# find_slowest: ten tests with their seconds, of those that a log tells them of.
find_slowest() {
  sed -nE -e 's/^(PASS|FAIL) (.*) \(([0-9.]+) s\).*/\3 \2/p' \
    -e 's/^([0-9.]+)s: plait :: (.*)/\1 \2/p' \
    -e 's/^\[ +(OK|FAILED) +\] ([^,]*).* \(([0-9]*)([0-9]{3}) ms\)$/0\3.\4 \2/p' \
    "$logs"/*.log 2> /dev/null | sort -rn | head -n 10 |
    while read -r seconds name; do
      printf '  %.1f s %s\n' "$seconds" "$name"
    done
}

# number PATTERN FILE: the last number that the sed pattern captures, or 0.
number() {
  local found
  found=$(sed -nE "s/$1/\1/p" "$2" | tail -n 1)
  echo "${found:-0}"
}

# suite NAME PASSED FAILED COMMAND...: counts by the two sed patterns. Open MPI
# removes its folder of the machine when a run ends, in which a run of the suite
# beside may be about to make its own: each suite has another one.
suite() {
  local name=$1 good=$2 bad=$3 code n_good n_bad start=$SECONDS mpi busy
  local TIMEFORMAT='%0U + %0S'
  shift 3
  echo "$name 0 1 0 0" > "$logs/$name.counts" # should this shell end
  mpi=$(mktemp -d "${TMPDIR:-/tmp}/plait-mpi-XXXXXX")
  { time OMPI_MCA_orte_tmpdir_base=$mpi "$@" > "$logs/$name.log" 2>&1; } 2> "$logs/$name.busy"
  code=$?
  busy=$(($(tail -n 1 "$logs/$name.busy")))
  rm -rf "$mpi"
  n_good=$(number "$good" "$logs/$name.log")
  n_bad=$(number "$bad" "$logs/$name.log")
  if [ "$n_bad" -eq 0 ] && { [ "$code" -ne 0 ] || [ "$n_good" -eq 0 ]; }; then
    echo "$name ended with code $code after $n_good passed tests" \
      >> "$logs/$name.log"
    n_bad=1
  fi
  echo "$name $n_good $n_bad $((SECONDS - start)) $busy" > "$logs/$name.counts"
  # What two suites print stays apart.
  flock "$logs" sh -c "echo '== $name' && cat '$logs/$name.log'"
}

# run NAME PASSED FAILED COMMAND...: beside at most two others, since suites keep one
# core busy and wait for files and for what they start, and beside those that sleep.
run() {
  while [ "$(jobs -rp | grep -vcx "${sleeping:-}")" -ge 3 ]; do
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
# Most tests compile the same few models: each kernel once a run.
export PLAIT_KERNEL_CACHE=$PWD/build/test-kernels
rm -rf "$PLAIT_KERNEL_CACHE"
stage install scripts/install-deps.sh
# A folder that there is stays as it is configured.
PLAIT_PRESET=unity stage build scripts/build.sh
if [ "${1:-}" = --all ]; then
  stage benchmarks scripts/build.sh benchmarks
fi

# A registered test is a GoogleTest binary of that name. One process each: a
# crash costs that binary's tests, not the others.
binaries=$(ctest --test-dir build -N | sed -nE 's/^ *Test +#[0-9]+: (.+)$/\1/p')
if [ -z "$binaries" ]; then
  echo "no unit tests are registered with ctest"
  failed=$((failed + 1))
fi

# unit BINARY: one that is registered, unless it has been run.
unit() {
  local filter="*-${left_out[$1]:-}"
  grep -qx "$1" <<< "$binaries" && [ ! -e "$logs/$1.counts" ] || return
  run "$1" '^\[  PASSED  \] ([0-9]+) tests?\.$' \
    '^\[  FAILED  \] ([0-9]+) tests?, listed below:$' \
    "build/bin/$1" --gtest_filter="$filter"
}

counts=('^([0-9]+) passed, [0-9]+ failed$' '^[0-9]+ passed, ([0-9]+) failed$')

# ours NAME FILE [OPTION...]: one of test/Execute.
ours() {
  local name=$1 file=$2
  shift 2
  run "$name" "${counts[@]}" build/venv/bin/python "test/Execute/$file.py" "$@"
}

# Debian's PyTorch is the system interpreter's.
torch() {
  local name=$1 file=$2
  shift 2
  run "$name" "${counts[@]}" /usr/bin/python3 "test/Execute/$file.py" "$@"
}

# One after another, beside all others: they wait for limits of time to pass.
{
  ours() { suite "$1" "${counts[@]}" build/venv/bin/python "test/Execute/$2.py" "${@:3}"; }
  ours site-faults site_faults "${covering[@]}"
  ours mpi mpi
  ours node node_stand_ins
  ours watching watching
  ours tcp tcp
} &
sleeping=$!

# What takes longest comes first, so that none of it is left alone at the end.
ours train train "${covering[@]}" "${trained[@]}"
run lit '^ *Passed *: *([0-9]+).*' '^ *Failed *: *([0-9]+).*' \
  /usr/lib/llvm-22/bin/lit -v "${lit[@]}" --param plait_bin="$PWD/build/bin" test
if [ "${1:-}" = --all ]; then
  run continued '^([0-9]+) compilations, .*: identical$' \
    '^([0-9]+) compilations differ$' \
    python3 test/Tools/plaitc/continue.py --all --bin build/bin build/continued
  ours training-defects training_defects
fi
run docs "${counts[@]}" build/venv/bin/python test/Docs/run.py "${docs[@]}"
ours defects defects "${defects[@]}"
unit plait-cuda-tests
ours expert-rows expert_rows
ours expert-loads expert_loads
unit PlaitCodegenPtxTests
ours overlap overlap "${covering[@]}"
unit PlaitPlannerTests
torch combinations random_models --configs "${combinations[@]}"
ours golden-runs golden_runs
ours reductions reductions "${covering[@]}"
torch random random_models "${random[@]}"
run prepare "${counts[@]}" build/venv-data/bin/python test/Execute/prepare.py
ours adapters adapters "${covering[@]}"
ours checkpoints checkpoints "${checkpoints[@]}"
ours replicas replicas
ours optimizers optimizers "${covering[@]}"
unit plait-runtime-tests
ours optima optima
ours models models
torch dropout dropout "${covering[@]}"
ours compression compression "${covering[@]}"
ours onebit-adam onebit_adam "${covering[@]}"
ours feedback feedback
ours power-sgd power_sgd "${covering[@]}"
ours sites sites "${covering[@]}"
ours gossip gossip "${covering[@]}"
ours clipping clipping "${covering[@]}"
ours heterogeneous heterogeneous "${covering[@]}"
ours decentralised decentralised
ours streaming streaming "${covering[@]}"
ours site-compression site_compression "${covering[@]}"
ours training training
unit PlaitCodegenTests
ours snapshots snapshots
ours offload offload "${covering[@]}"
ours elastic elastic "${elastic[@]}"
ours growth growth
torch documents documents "${covering[@]}"
torch target-weights target_weights "${covering[@]}"
ours capi capi
ours errors errors
run export "${counts[@]}" \
  build/venv-transformers/bin/python test/Execute/export.py
ours peaks peaks
ours outputs outputs
ours launchers launchers "${launchers[@]}"
ours emitted emitted "${covering[@]}"
ours data data
ours activations activations
torch rates rates
torch rate-groups rate_groups
ours config-files config_files
ours from-torch from_torch "${from_torch[@]}"
ours float-inputs float_inputs "${from_torch[@]}"
ours random-modules random_modules "${modules[@]}"
ours python-package python_package
ours python-torch python_package_torch
ours container container
for binary in $binaries; do
  unit "$binary"
done
if [ "${1:-}" = --fuzz ]; then
  cmake --preset fuzz > /dev/null
  stage fuzz-build cmake --build --preset fuzz
  run fuzz "${counts[@]}" python3 test/Fuzz/run.py
fi
finish
