//===- ParameterPacks.cpp - Addresses of a rank's parameters --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One table for a rank of the pipeline, from the symbols of packs and of their
// members to pack and offset. A symbol that is in none has a buffer of its own,
// so that callers need not tell parameters, packs and accumulators apart.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Buffers.h"

using namespace mlir;
using namespace plait;

ParameterPacks::ParameterPacks(ModuleOp module, int64_t rank) {
  for (auto pack : module.getOps<nn::PackOp>()) {
    // A tied parameter may lie in packs of two ranks, at other offsets.
    if (static_cast<int64_t>(pack.getRank()) != rank)
      continue;
    members[pack.getSymName()] = {pack, 0};
    for (auto [member, offset] :
         llvm::zip_equal(pack.getMembers().getAsRange<FlatSymbolRefAttr>(),
                         pack.getOffsets()))
      members[member.getValue()] = {pack, offset};
  }
}

nn::PackOp ParameterPacks::find(StringRef symbol) const {
  return members.lookup(symbol).pack;
}

ParameterPacks::Place ParameterPacks::locate(StringRef symbol,
                                             nn::Slot slot) const {
  auto found = members.find(symbol);
  if (found == members.end())
    return {bufferName(symbol, slot), 0};
  auto [pack, offset] = found->second;
  // A rank has some rows of the pack, which may begin in the middle of a
  // parameter.
  if (nn::PackOp(pack).isDivided(slot))
    offset = 0;
  int64_t bits = pack.getSlotType(slot).getElementTypeBitWidth();
  return {bufferName(nn::PackOp(pack).getSymName(), slot), offset * bits / 8};
}
