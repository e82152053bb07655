//===- Buffers.cpp - Names of buffers, and what lies where in them --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Passes, the writer of plan files and the proof agree here. Packs are one
// table for a rank of the pipeline, from the symbols of packs and of their
// members to pack and offset. A symbol that is in none has a buffer of its own,
// so that callers need not tell parameters, packs and accumulators apart.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Plan/IR/Buffers.h"

#include "plait/Dialect/NN/IR/NamedLosses.h"
#include "plait/Plan/Plan_generated.h"

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

/// Constants with the same text have the same numbers and share a buffer.
std::string plait::constantName(Operation *op) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << op->getName().getStringRef();
  // Not the layer and the like: only what makes the numbers.
  llvm::SmallDenseSet<StringAttr> inherent(
      op->getRegisteredInfo()->getAttributeNames().begin(),
      op->getRegisteredInfo()->getAttributeNames().end());
  for (NamedAttribute attribute : op->getAttrs())
    if (inherent.contains(attribute.getName()))
      out << ' ' << attribute.getName().getValue() << '='
          << attribute.getValue();
  out << ' ' << op->getResult(0).getType();
  return text;
}

int plait::findMetric(ModuleOp module, StringRef name) {
  SmallVector<StringRef> named = nn::getNamedLosses(module);
  if (auto *own = llvm::find(named, name); own != named.end())
    return int(plan::fb::Metric::Count) + int(own - named.begin());
  const char *const *names = plan::fb::EnumNamesMetric(); // null-terminated
  for (int index = 0; names[index]; ++index)
    if (name == names[index])
      return index;
  return -1;
}
