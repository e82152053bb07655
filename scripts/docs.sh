#!/usr/bin/env bash
# Writes the reference pages of dialects, passes and op interfaces, as the .td
# files describe them, into build/docs or the folder given. That of dialect nn,
# which models are written in, is checked in: docs/reference/nn.md is a copy.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-build/docs}
mkdir -p "$out"
flags=(-I /usr/lib/llvm-22/include -I include)

# Links to the sections in the place of [TOC], which only some readers know.
link() { # PAGE
  awk '
    NR == FNR {
      if (!/^### /) next
      text = slug = substr($0, 5)
      slug = tolower(slug)
      gsub(/[^a-z0-9_ -]/, "", slug)
      gsub(/ /, "-", slug)
      sub(/ \(.*/, "", text)
      links = links (links ? ",\n" : "") "[" text "](#" slug ")"
      next
    }
    /^\[TOC\]/ { print links; next }
    { print }' "$1" "$1"
}

generate() { # PAGE GENERATOR TD OPTION...
  mlir-tblgen-22 "-gen-$2" "${@:4}" "${flags[@]}" "include/plait/$3" \
    -o "$out/$1.part"
  link "$out/$1.part" > "$out/$1.md"
  rm "$out/$1.part"
}

generate nn dialect-doc Dialect/NN/IR/NNAllOps.td -dialect=nn
generate dist dialect-doc Dialect/Dist/IR/DistOps.td -dialect=dist
generate pipe dialect-doc Dialect/Pipe/IR/PipeOps.td -dialect=pipe
generate plan dialect-doc Dialect/Plan/IR/PlanOps.td -dialect=plan
generate plait dialect-doc Dialect/Plait/IR/PlaitAttrs.td -dialect=plait
generate Passes pass-doc Transforms/Passes.td
generate ProofPasses pass-doc Proof/Passes.td
generate Interfaces op-interface-docs Interfaces/OpInterfaces.td
generate NNInterfaces op-interface-docs Dialect/NN/IR/NNInterfaces.td
echo "reference: $out"
