//===- Habits.cpp - What another program keeps ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Habits.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

/// Elements of its result in a microbatch of one sequence.
static double countResult(const Operation &op) {
  return op.kind == OperationKind::Attention
             ? double(op.heads) * op.headSize * op.queries
             : double(op.batch) * op.m * op.n;
}

//===----------------------------------------------------------------------===//
// Logits
//===----------------------------------------------------------------------===//

/// Elements of the logits of a head, which is the last block and passes nothing
/// on; 0 where a block is none.
static double countLogits(const Block &block) {
  if (block.output.elements > 0 || block.output.fourByte > 0)
    return 0;
  double most = 0;
  for (const Operation &op : block.operations)
    if (op.kind == OperationKind::Matmul && op.pass == Pass::Forward)
      most = std::max(most, countResult(op));
  return most;
}

/// Takes logits out of what is saved, in whichever width they are there, and
/// puts `bytes` of each in their place.
static void replaceLogits(Saved &saved, double logits, double bytes) {
  if (saved.fourByte >= logits)
    saved.fourByte -= logits;
  else if (saved.elements >= logits)
    saved.elements -= logits;
  saved.fourByte += logits * bytes / 4;
}

static void adoptLoss(Block &head, const Framework &framework) {
  double logits = countLogits(head);
  if (logits == 0 || framework.keptLogitBytes == 0)
    return;
  replaceLogits(head.kept, logits, framework.keptLogitBytes);
  replaceLogits(head.lastKept, logits, framework.keptLogitBytes);
  replaceLogits(head.workspace, logits, framework.madeLogitBytes);
}

//===----------------------------------------------------------------------===//
// Selective recomputation
//===----------------------------------------------------------------------===//

namespace {

/// The forward pass of a layer, divided into what is saved and what runs again
/// in the backward pass.
struct Division {
  Saved saved;
  std::vector<Operation> again;
};

} // namespace

/// Matmuls are counted from the first one of the layer; reductions over ranks
/// are saved like them, gathers run again. The result of the last matmul is
/// read by nobody behind it: a compiler sees that and does not keep it.
static Division divideForward(const Block &layer, const Framework &framework) {
  Division division;
  division.saved = layer.input;
  const Operation *last = nullptr;
  for (const Operation &op : layer.operations)
    if (op.kind == OperationKind::Matmul && op.pass == Pass::Forward)
      last = &op;
  int matmuls = 0;
  for (const Operation &op : layer.operations) {
    if (op.pass != Pass::Forward)
      continue;
    bool isMatmul = op.kind == OperationKind::Matmul;
    bool isSaved =
        isMatmul ? matmuls++ % 2 == 0 : op.kind == OperationKind::Attention;
    bool isUnread = &op == last && !framework.keepsEachResult;
    if (isSaved && !isUnread)
      division.saved.elements += countResult(op);
    if (op.kind == OperationKind::Attention) // of each row of scores one number
      division.saved.fourByte += double(op.heads) * op.queries;
    bool isReduced = op.kind == OperationKind::Collective &&
                     op.collective != CollectiveKind::AllGather;
    if (!isSaved && !isReduced && !(isMatmul && &op == last))
      division.again.push_back(op);
  }
  return division;
}

/// Saves what attention and every other matmul make, and makes the rest again
/// in front of the backward pass, where it lies beside the gradients.
static Block saveOtherMatmuls(const Block &layer, const Framework &framework) {
  Division division = divideForward(layer, framework);
  Block block = layer;
  block.workspace.elements +=
      std::max(0.0, layer.kept.elements - division.saved.elements);
  block.workspace.fourByte +=
      std::max(0.0, layer.kept.fourByte - division.saved.fourByte);
  block.kept = division.saved;
  block.lastKept = {};
  for (Operation &op : division.again) {
    op.pass = Pass::BackwardInput;
    block.operations.push_back(std::move(op));
  }
  return block;
}

Work planner::adoptHabits(Work work, const Framework &framework,
                          Precision precision) {
  if (precision != Precision::FP32)
    for (Block &block : work.blocks)
      adoptLoss(block, framework);
  if (!framework.savesOtherMatmuls)
    return work;
  work.cheapBlocks = work.blocks;
  for (size_t i = size_t(work.before); i + work.after < work.order.size(); ++i)
    work.cheapBlocks[work.order[i]] =
        saveOtherMatmuls(work.blocks[work.order[i]], framework);
  return work;
}
