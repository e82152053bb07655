#!/usr/bin/env bash
# From a fresh clone to a transformer that trains on 8 ranks: installs, builds,
# compiles a small GPT-2 for a 2 x 2 x 2 mesh, and trains it on the King James
# Bible, byte by byte.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

say "packages"
scripts/install-deps.sh
say "build"
scripts/build.sh plaitc plait-run # what the first step needs

out=build/quickstart
mkdir -p "$out"
text=$out/bible.txt
plan=$out/nano.plan
if [ ! -s "$text" ]; then
  # One verse a line, without its number.
  bible -f Gen1:1-Rev22:21 < /dev/null | sed -E 's/^[^ ]+ //' > "$text.part"
  mv "$text.part" "$text"
fi

say "compile: 4 layers, pp=2 x dp=2 x tp=2, 1F1B, full recomputation"
build/bin/plaitc examples/models/gpt2-nano --mesh pp=2,dp=2,tp=2 \
  --schedule 1f1b --global-batch 16 --micro-batch 2 --seq 128 \
  --recompute full -o "$plan"

say "train on $(wc -c < "$text") bytes of text"
rm -f "$out/steps.jsonl" # a run adds to its log
build/bin/plait-run "$plan" --text "$text" --steps 60 --lr 1e-3 --shuffle \
  --log "$out/steps.jsonl" --save "$out/weights"

build/venv/bin/python - "$out/steps.jsonl" << 'EOP'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as log:
    losses = [json.loads(line)["loss"] for line in log]
print(f"\nloss: step 1 {losses[0]:.4f}, step {len(losses)} {losses[-1]:.4f}")
if not losses[-1] < losses[0] - 0.5:
    sys.exit("error: the loss did not fall")
EOP

say "look at the plan"
scripts/build.sh plait-plan
build/bin/plait-plan show "$plan"
echo "plan: $plan, log: $out/steps.jsonl, weights: $out/weights"
