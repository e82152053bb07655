#!/usr/bin/env bash
# Writes the reference pages of dialects, passes and op interfaces, as the .td
# files describe them, into build/docs or the folder given.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-build/docs}
mkdir -p "$out"
flags=(-I /usr/lib/llvm-22/include -I include)

generate() { # PAGE GENERATOR TD OPTION...
  mlir-tblgen-22 "-gen-$2" "${@:4}" "${flags[@]}" "include/plait/$3" \
    -o "$out/$1.md"
}

generate nn dialect-doc Dialect/NN/IR/NNOps.td -dialect=nn
generate dist dialect-doc Dialect/Dist/IR/DistOps.td -dialect=dist
generate pipe dialect-doc Dialect/Pipe/IR/PipeOps.td -dialect=pipe
generate plan dialect-doc Dialect/Plan/IR/PlanOps.td -dialect=plan
generate plait dialect-doc Dialect/Plait/IR/PlaitAttrs.td -dialect=plait
generate Passes pass-doc Transforms/Passes.td
generate ProofPasses pass-doc Proof/Passes.td
generate Interfaces op-interface-docs Interfaces/OpInterfaces.td
generate NNInterfaces op-interface-docs Dialect/NN/IR/NNInterfaces.td
echo "reference: $out"
