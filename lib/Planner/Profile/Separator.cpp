//===- Separator.cpp - What grows with the microbatch ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Separator.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using planner::Saved;

void Separator::split(double &value, double atLarge, double *fixed,
                      double share) const {
  double perSequence = (atLarge - value) / (large - small);
  if (fixed)
    *fixed += share * std::max(0.0, value - small * perSequence);
  value = perSequence;
}

void Separator::split(Saved &value, const Saved &atLarge) const {
  split(value.elements, atLarge.elements);
  split(value.fourByte, atLarge.fourByte);
}

bool Separator::scale(int64_t &size, int64_t atLarge) const {
  if (size == atLarge)
    return false;
  size = std::llround(size / small);
  return true;
}

/// The first size that differs is the one that grows: of a matmul only one
/// does, or none where it is of weights alone.
void Separator::split(planner::Operation &op,
                      const planner::Operation &atLarge) const {
  using Scaled = planner::Operation::Scaled;
  if (scale(op.batch, atLarge.batch))
    op.scaled = Scaled::Batch;
  else if (scale(op.m, atLarge.m))
    op.scaled = Scaled::M;
  else if (scale(op.n, atLarge.n))
    op.scaled = Scaled::N;
  else if (scale(op.k, atLarge.k))
    op.scaled = Scaled::K;
  split(op.elementsPerSequence, atLarge.elementsPerSequence, &op.elementsFixed);
  split(op.fourBytePerSequence, atLarge.fourBytePerSequence, &op.elementsFixed,
        wide);
  split(op.flopsPerSequence, atLarge.flopsPerSequence);
  split(op.collectivePerSequence, atLarge.collectivePerSequence,
        &op.collectiveFixed);
  split(op.taken, atLarge.taken);
  split(op.takenApart, atLarge.takenApart);
  split(op.leftApart, atLarge.leftApart);
}

/// Changes `first` only where the operations are the same ones in the same
/// order: a line through two different programs would mean nothing.
bool Separator::separate(planner::Block &first,
                         const planner::Block &second) const {
  auto alike = [](const planner::Operation &x, const planner::Operation &y) {
    return x.kind == y.kind && x.pass == y.pass && x.name == y.name &&
           x.collective == y.collective && x.axis == y.axis;
  };
  if (!llvm::equal(first.operations, second.operations, alike))
    return false;
  for (auto [op, atLarge] :
       llvm::zip_equal(first.operations, second.operations))
    split(op, atLarge);
  split(first.kept, second.kept);
  split(first.lastKept, second.lastKept);
  split(first.input, second.input);
  split(first.workspace, second.workspace);
  split(first.output, second.output);
  return true;
}
