//===- CollectivePieces.cpp - Pieces of a collective over tp --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CollectivePieces.h"

#include "plait/Dialect/NN/IR/Names.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

bool plait::hasPieces(CollectiveOp collective) {
  if (collective.getAxis() != kTensorAxis || collective.getMembers() ||
      collective.getIds())
    return false;
  switch (collective.getKind()) {
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
    return true;
  case CollectiveKind::AllReduce:
    return collective.isInPlace() && collective.getOuter() == 1;
  default:
    return false;
  }
}

CollectiveOp plait::createPiece(OpBuilder &builder, CollectiveOp collective,
                                int64_t piece, int64_t pieces) {
  auto own = cast<CollectiveOp>(builder.clone(*collective));
  if (collective.getKind() == CollectiveKind::AllReduce)
    own.setChunk(collective.getChunk() / pieces);
  else
    own.setOuter(collective.getOuter() / pieces);
  auto getPart = [&](MemoryAttr whole) {
    int64_t bytes = whole.getBytes() / pieces;
    return whole.getPart(piece * bytes, bytes);
  };
  own.setInputAttr(getPart(collective.getInput()));
  own.setOutputAttr(getPart(collective.getOutput()));
  return own;
}
