//===- ExpertsWork.cpp - Work of a mixture of experts in closed form ------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What Megatron-Core leaves on one rank with expert parallelism: rows are sent
// to the ranks of their experts and back.
//
//===----------------------------------------------------------------------===//

#include "TransformerBuilder.h"

using namespace plait;
using namespace plait::planner;

/// The power of two that divides how far rows lie apart: how many there are
/// does not matter to that.
static int64_t getAlignment(int64_t in, int64_t out) {
  return (in | out) & -(in | out);
}

/// One for each expert that the rank has, which take its rows in equal parts.
void TransformerBuilder::groupedForward(const char *name, int64_t in,
                                        int64_t out) {
  int64_t own = divideUp(shape.experts.experts, ep);
  matmul(Pass::Forward, name, divideUp(int64_t(countRows()), own), out, in,
         Operation::Scaled::M);
  block.operations.back().batch = own;
  block.operations.back().rowAlignment = getAlignment(in, out);
}

void TransformerBuilder::groupedBackward(const char *name, int64_t in,
                                         int64_t out) {
  int64_t own = divideUp(shape.experts.experts, ep);
  int64_t rows = divideUp(int64_t(countRows()), own);
  matmul(Pass::BackwardInput, name, rows, in, out, Operation::Scaled::M);
  block.operations.back().batch = own;
  block.operations.back().rowAlignment = getAlignment(in, out);
  matmul(Pass::BackwardWeight, name, out, in, rows, Operation::Scaled::K);
  block.operations.back().batch = own;
  block.operations.back().rowAlignment = getAlignment(in, out);
}

/// Rows to the ranks of their experts, or back.
void TransformerBuilder::exchange(Pass pass, const char *name) {
  if (ep == 1)
    return;
  Operation op;
  op.kind = OperationKind::Collective;
  op.pass = pass;
  op.name = name;
  op.collective = CollectiveKind::AllToAll;
  op.axis = Axis::EP;
  op.collectivePerSequence = countRows() * shape.hidden;
  block.operations.push_back(op);
}

/// Rows are copied into the order of their experts, and out of it.
void TransformerBuilder::expertsForward() {
  const ExpertShape &own = shape.experts;
  double rows = countRows(), moved = rows * shape.hidden;
  double inner = double(divideUp(own.ffn, tp));
  linearForward("router", shape.hidden, own.experts);
  kernel(Pass::Forward, "route", 0, 4.0 * tokens * own.experts);
  kernel(Pass::Forward, "permute", 2 * moved);
  exchange(Pass::Forward, "dispatch");
  groupedForward("experts in", shape.hidden,
                 (shape.ffnMatrices - 1) * int64_t(inner));
  kernel(Pass::Forward, "activation", shape.ffnMatrices * rows * inner);
  groupedForward("experts out", int64_t(inner), shape.hidden);
  exchange(Pass::Forward, "combine");
  kernel(Pass::Forward, "unpermute", moved + whole);
  if (own.shared)
    feedForward();
}

void TransformerBuilder::expertsBackward() {
  const ExpertShape &own = shape.experts;
  double rows = countRows(), moved = rows * shape.hidden;
  double inner = double(divideUp(own.ffn, tp));
  if (own.shared)
    feedBackward();
  kernel(Pass::BackwardInput, "unpermute", moved + whole);
  exchange(Pass::BackwardInput, "combine");
  groupedBackward("experts out", int64_t(inner), shape.hidden);
  kernel(Pass::BackwardInput, "activation",
         (2 * shape.ffnMatrices - 1) * rows * inner);
  groupedBackward("experts in", shape.hidden,
                  (shape.ffnMatrices - 1) * int64_t(inner));
  exchange(Pass::BackwardInput, "dispatch");
  kernel(Pass::BackwardInput, "permute", 2 * moved);
  kernel(Pass::BackwardInput, "route", 0, 4.0 * tokens * own.experts);
  linearBackward("router", shape.hidden, own.experts, false);
}
