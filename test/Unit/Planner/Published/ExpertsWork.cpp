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

#include <algorithm>

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
  issue(Pass::Forward, name, double(own - 1));
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
  issue(Pass::BackwardInput, name, double(own - 1));
  issue(Pass::BackwardWeight, name, double(own - 1));
}

/// The part of all choices whose rows are sent: where one goes to each rank
/// once, or to each node once where there are several, the number of places
/// that have one of `choices` experts drawn of all. Inside of a node it then
/// goes on over faster links (deepseek-ai/DeepEP, README).
static double getSentPart(const TransformerShape &shape, int ranks) {
  const ExpertShape &own = shape.experts;
  const Recipe &recipe = shape.recipe;
  if (!recipe.sendsOnce)
    return 1;
  int places =
      ranks > recipe.nodeRanks ? ranks / std::max(1, recipe.nodeRanks) : ranks;
  double others = double(own.experts - own.experts / places), none = 1;
  for (int64_t i = 0; i < own.choices; ++i)
    none *= std::max(0.0, (others - double(i)) / double(own.experts - i));
  return places * (1 - none) / double(own.choices);
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
  op.collectivePerSequence =
      countRows() * shape.hidden * getSentPart(shape, ep);
  block.operations.push_back(op);
}

/// Rows are copied into the order of their experts, and out of it: NCCL sends
/// them in that order, and once more they are sorted where they arrive.
void TransformerBuilder::expertsForward() {
  const ExpertShape &own = shape.experts;
  double rows = countRows(), moved = rows * shape.hidden;
  double inner = double(divideUp(own.ffn, tp));
  int64_t held = divideUp(own.experts, ep);
  bool sortsTwice = ep > 1 && shape.recipe.isKnown && !shape.recipe.sendsOnce;
  linearForward("router", shape.hidden, own.experts);
  kernel(Pass::Forward, "route", 0, 4.0 * tokens * own.experts);
  routeKernels();
  if (sortsTwice)
    kernel(Pass::Forward, "permute to send", moved + whole);
  exchange(Pass::Forward, "dispatch");
  kernel(Pass::Forward, "permute", 2 * moved);
  if (sortsTwice && shape.recipe.eightBit)
    kernel(Pass::Forward, "pad", 2 * moved);
  cast(Pass::Forward, moved, held);
  groupedForward("experts in", shape.hidden,
                 (shape.ffnMatrices - 1) * int64_t(inner));
  kernel(Pass::Forward, "activation", shape.ffnMatrices * rows * inner);
  cast(Pass::Forward, rows * inner, held);
  groupedForward("experts out", int64_t(inner), shape.hidden);
  expertBiasesForward(moved);
  if (sortsTwice && shape.recipe.eightBit)
    kernel(Pass::Forward, "cut padding", 2 * moved);
  if (sortsTwice)
    kernel(Pass::Forward, "unpermute to send", 2 * moved);
  exchange(Pass::Forward, "combine");
  kernel(Pass::Forward, "unpermute", moved + whole);
  if (own.shared)
    feedForward();
}

void TransformerBuilder::expertsBackward() {
  const ExpertShape &own = shape.experts;
  double rows = countRows(), moved = rows * shape.hidden;
  double inner = double(divideUp(own.ffn, tp));
  double wide = (shape.ffnMatrices - 1) * inner;
  int64_t held = divideUp(own.experts, ep);
  bool sortsTwice = ep > 1 && shape.recipe.isKnown && !shape.recipe.sendsOnce;
  if (own.shared)
    feedBackward();
  kernel(Pass::BackwardInput, "unpermute", moved + whole);
  exchange(Pass::BackwardInput, "combine");
  if (sortsTwice)
    kernel(Pass::BackwardInput, "unpermute to send", 2 * moved);
  if (sortsTwice && shape.recipe.eightBit)
    kernel(Pass::BackwardInput, "pad", 2 * moved);
  expertBiasesBackward(moved);
  cast(Pass::BackwardInput, moved, held);
  if (shape.recipe.activationsAgain) {
    kernel(Pass::BackwardInput, "activation again",
           shape.ffnMatrices * rows * inner);
    cast(Pass::BackwardInput, rows * inner, held);
    issueAgain(1);
  }
  groupedBackward("experts out", int64_t(inner), shape.hidden);
  kernel(Pass::BackwardInput, "activation",
         (2 * shape.ffnMatrices - 1) * rows * inner);
  cast(Pass::BackwardInput, rows * wide, held);
  groupedBackward("experts in", shape.hidden, int64_t(wide));
  if (sortsTwice && shape.recipe.eightBit)
    kernel(Pass::BackwardInput, "cut padding", 2 * moved);
  kernel(Pass::BackwardInput, "permute", 2 * moved);
  exchange(Pass::BackwardInput, "dispatch");
  if (sortsTwice)
    kernel(Pass::BackwardInput, "permute to send", moved + whole);
  kernel(Pass::BackwardInput, "route", 0, 4.0 * tokens * own.experts);
  linearBackward("router", shape.hidden, own.experts, false);
}
